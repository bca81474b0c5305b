import html.parser
import json
import math
import re

import pytest
from support.listed import write_run

from simcse_jax.errors import Preempted, UserError
from simcse_jax.runs import report
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.training.examples import cut

AGAINST = {"before": 60.0, "after": 64.25, "low": 1.5, "high": 7.0, "measure": "nDCG@10 × 100", "step": 10}
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "closes": '"></dd></li></bdi><img src=x onerror=alert(1)>',
    "long": "long " * 20_000,
    "arabic": "\u202eمرحبا بالعالم",
    "emoji": "👩‍👩‍👧‍👦 ok",
    "half": "half \ud83d",
    "null": "nul \0 and\ttabs\n",
}


class Page(html.parser.HTMLParser):
    """The tags, the attributes and the text of a page; tags must be closed in their order."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "link", "br", "img", "circle", "line", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in ("meta", "link", "circle", "line", "polyline") or self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def make(folder, ended="", **files) -> tuple[str, Page]:
    """The report of a folder's run, with more files in it."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    report.write(folder, ended)
    text = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in page.tags and not [name for name, _ in page.attributes if name.startswith("on")]
    assert all(value.startswith("data:") for name, value in page.attributes if name in ("src", "href"))
    return text, page


def example(*texts, change="right answer: #3 → #1"):
    return {"texts": dict(zip(("query", "right answer", "found first, before"), texts, strict=False)), "change": change}


def test_a_finished_run_shows_the_outcome_the_curves_the_examples_and_the_next_commands(tmp_path):
    folder = tmp_path / "my run"
    scores = {0: 60.0, 5: 63.0, 10: 62.5}
    write_run(folder, scores, {"best_step": 5, "against_start": AGAINST}, train__batch_size=48)
    pairs = [["a", "b"], ["c", "d"]]
    examples = {"pairs": pairs, "before": [[0.9, 0.8], [0.7, 0.9]], "after": [[0.9, 0.1], [0.2, 0.9]]}
    examples |= {"rose": [example("q", "right", "wrong")], "fell": [example("q2", "r2", "", change="#1 → #4")]}
    retrieval = {"faq": {"ndcg@10": 64.25, "queries": 80, "documents": 400}}
    scores = {"best_step": 5, "against_start": AGAINST, "STSBenchmark": {"spearman": 81.25, "pairs": 1379}}
    scores |= {"retrieval": retrieval, "retrieval_average": {"ndcg@10": 64.25}}
    text, page = make(folder, examples=examples, result=scores)
    shown = " ".join(page.text)
    assert "STS-B 81.25 1379" in shown and "faq 64.25 80 400" in shown
    assert "Training helped: 60.00 → 64.25" in text and "+4.25, with a 95% interval from +1.50 to +7.00" in shown
    assert page.tags.count("polyline") == 2 and text.count('class="found"') == 1  # loss and scores; the kept one
    assert "before: mean cosine of pairs 0.90, others 0.75" in shown and "others 0.15" in shown
    assert text.count("--s:1.00") == 4 and text.count("--s:0.00") == 1  # one scale for both maps
    assert shown.index("What improved most") < shown.index("right answer: #3 → #1") < shown.index("What got worse most")
    assert "train.batch_size" in shown and "train.epochs" not in shown and "the package's defaults" in shown
    assert f"simcse-jax export --workdir '{folder}' --output DIR" in shown and "1 × cpu (cpu)" in shown
    run = json.loads((folder / "run.json").read_text()) | {"recipe": {"name": "tune", "changed": {"train.epochs": 3}}}
    _, page = make(folder, run=run)
    shown = " ".join(page.text)
    assert "Fields that differ from the recipe tune" in shown and "train.epochs" in shown and "batch_size" not in shown


def test_folds_and_a_base_model_that_is_kept_are_said(tmp_path):
    folder = tmp_path / "run"
    folds = AGAINST | {"folds": [[60.0, 65.0], [60.0, 63.5]], "rows": 400}
    write_run(folder, {}, {"best_step": 10, "against_start": folds})
    shown = " ".join(make(folder)[1].text)
    assert "400 rows in 2 folds, each scored by a model of the others. The model that is kept was then" in shown
    assert "fold 2" in shown and "60.0 → 63.5" in shown
    for low, high, why in ((-0.5, 7.0, "The interval reaches 0"), (-7.0, -0.5, "Training made it worse")):
        kept = {"best_step": 0, "against_start": folds | {"low": low, "high": high}}
        text, _ = make(folder, result=kept)
        assert "No gain beyond chance, so the base model is kept: 60.00 → 64.25" in text and why in text
        assert "opens as the base model" in text and "The model that is kept" not in text


def test_a_run_without_scores_one_that_was_killed_and_one_with_nan_say_so(tmp_path):
    write_run(tmp_path / "bare", {})
    assert "Trained for 3 steps; nothing was scored" in make(tmp_path / "bare")[0]
    (tmp_path / "bare" / "metrics.jsonl").unlink()
    assert "No step was logged." in make(tmp_path / "bare")[0]
    (tmp_path / "bare" / "metrics.jsonl").write_text('{"step": 0, "eval/stsb_dev": 61.5}\n')
    assert "Scored without training: stsb dev 61.50" in make(tmp_path / "bare")[0]
    (tmp_path / "bare" / "folds.json").write_text(json.dumps({"measure": "nDCG@10", "folds": [[], [], []]}))
    assert "Not finished: 3 folds and 0 steps so far" in make(tmp_path / "bare", None)[0]
    killed = tmp_path / "killed"
    write_run(killed, {2: 61.0})
    reporter = report.Report(killed)
    metrics = Metrics(killed, 3)
    metrics.add(reporter)
    metrics.write(4, {"loss": 0.5, "eval/stsb_dev": math.inf})
    page = (killed / "report.html").read_text()  # of a run that no handler ended
    assert "Not finished: 4 steps so far" in page and "the same command resumes it" in page
    assert "stsb dev (NaN or infinite, and left out: 1)" in page
    errors: dict = {"the loss is nan, the norm &lt;inf&gt;": UserError("step 7: the loss is nan, the norm <inf>")}
    errors |= {
        "ZeroDivisionError: a &amp; b": ZeroDivisionError("a & b"),
        "saved at step 7": Preempted("saved at step 7"),
    }
    for said, error in (errors | {"interrupted; the same command resumes it": KeyboardInterrupt()}).items():
        with pytest.raises(type(error)), report.reported(killed, True):
            assert "Not finished: 4 steps so far" in (killed / "report.html").read_text()
            raise error
        page = (killed / "report.html").read_text()
        assert "Stopped before its end" in page and said in page and "simcse-jax export" not in page
    with report.reported(killed, True):
        pass
    assert "stsb dev: 61.00 before" in (killed / "report.html").read_text()
    (killed / "report.html").unlink()
    with report.reported(killed, False):
        pass
    assert not (killed / "report.html").exists()


@pytest.mark.parametrize("kind", HOSTILE)
def test_texts_are_shown_as_text(tmp_path, kind):
    """Wherever a text stands: pairs, examples, names of models and data, labels of tasks, an error."""
    bad = HOSTILE[kind]
    folder, shown = tmp_path / "run", cut(bad)
    write_run(folder, {0: 1.0, 9: 2.0}, {"best_step": 9, shown: {"spearman": 1.0, "pairs": 3}}, model__init_from=shown)
    examples = {"pairs": [[shown, shown]], "before": [[1.0]], "after": [[1.0]], "rose": [example(shown, shown, shown)]}
    text, page = make(folder, ended=f"step 1: {shown}", examples=examples)
    assert len(text) < 60_000 and len(shown) <= 301
    found = [part for part in page.text if shown.replace("\0", "\ufffd").strip()[:20] in part.replace("\0", "\ufffd")]
    assert len(found) >= 8, found
    assert dict(page.attributes)["dir"] == "auto" and page.tags.count("bdi") == 2
    assert (kind == "long") == ("…" in shown)


def test_the_policy_lets_nothing_be_loaded_or_run(tmp_path):
    write_run(tmp_path / "run", {})
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', make(tmp_path / "run")[0])
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
