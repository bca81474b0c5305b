import json
import shutil

import numpy as np
import pytest
from support import call

from simcse_jax.evaluation import geometry, sts
from simcse_jax.evaluation.analysis.dynamics import FIELDS
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import as_path
from simcse_jax.runs.kept import checkpoint_encoders, steps_of
from simcse_jax.runs.metrics import read_metrics


def changed(workdir, target, temperature=None, **analysis):
    """A copy of a run with another temperature, say, and with what was measured while it trained."""
    shutil.copytree(workdir, target)
    about = json.loads((target / "run.json").read_text())
    if temperature:
        about["config"]["objective"]["info_nce"]["temperature"] = temperature
        about["config"]["eval"]["every"] = 99  # which trains nothing else
        del about["config"]["analysis"]  # as of a run of before there was such a field
    about["sha256"] |= {"analysis.data": analysis["sha256"]} if "sha256" in analysis else {}
    (target / "run.json").write_text(json.dumps(about))
    lines = [{"step": step, "analysis": point} for step, point in analysis.get("points", {}).items()]
    with (target / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return target


def test_kept_checkpoints_are_measured_and_drawn_together(trained, corpus, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(Progress, "__exit__", lambda self, *_: shown.append(self._total) if self._shown else None)
    other = changed(trained, tmp_path / "other", temperature=0.1)
    done = call("analyze", "--runs", trained, other, "--data", corpus["dev"], "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "out" / "dynamics.json").read_text())
    assert list(found["runs"]) == ["temperature 0.05", "temperature 0.1"]
    assert found["runs"]["temperature 0.1"]["workdir"] == str(other)
    first, second = (run["points"] for run in found["runs"].values())
    assert first == second  # of the same parameters
    assert [point["step"] for point in first] == [0, *steps_of(trained)]
    assert (found["about"]["sentences"], found["about"]["pairs_of_alignment"]) == (20, 4)

    assert shown == [28, 20] * 2 * len(first)  # 20 sentences and 4 pairs are encoded, 20 sentences measured

    pairs = sts.read_graded_pairs(corpus["dev"])
    for kept, point in zip(checkpoint_encoders(as_path(str(trained))), first, strict=True):
        one, two, rows = (kept.embed(side) for side in (pairs.first[-4:], pairs.second[-4:], pairs.first))
        assert point["alignment"] == pytest.approx(geometry.alignment(one, two), abs=1e-5)
        assert point["uniformity"] == pytest.approx(geometry.uniformity(rows), abs=1e-5)
        states = {row: states[-1] for row, states in kept.embed.tokens.hidden_states(pairs.first)}
        words = [len(sentence.split()) + 2 for sentence in pairs.first]
        norms = [np.linalg.norm(states[row][:count], axis=1).mean() for row, count in enumerate(words)]
        assert point["l2_norm"] == pytest.approx(np.mean(norms), rel=0.05)  # for one token of each sentence
        assert point["adjusted_self_similarity"] == pytest.approx(
            point["self_similarity"] - point["anisotropy"], abs=2e-6
        )
        assert f"step {point['step']}: anisotropy {point['anisotropy']:.4f}" in done.stdout
    assert len({point["l2_norm"] for point in first}) == len(first)
    assert {path.name for path in (tmp_path / "out").glob("*.svg")} == {f"{field}.svg" for field in FIELDS}
    assert "temperature 0.1" in (tmp_path / "out" / "report.html").read_text()


def recording(value: float) -> dict:
    return dict.fromkeys(("self_similarity", "intra_sentence_similarity", *FIELDS), value)


def test_measurements_made_during_training_are_drawn(trained, tmp_path):
    one, two = (
        changed(trained, tmp_path / name, points={0: recording(0.9), 4: recording(value)}, sha256="1")
        for name, value in (("one", 0.3), ("two", 0.2))
    )
    done = call("analyze", "--runs", one, two, "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "out" / "dynamics.json").read_text())
    assert {name: run["points"] for name, run in found["runs"].items()} == {
        "one": [{"step": 0, **recording(0.9)}, {"step": 4, **recording(0.3)}],
        "two": [{"step": 0, **recording(0.9)}, {"step": 4, **recording(0.2)}],
    }
    assert found["data"] == "dev.tsv" and "analysis.every" in found["about"]["source"]
    assert len(read_metrics(as_path(str(one)))) == len(read_metrics(as_path(str(trained)))) + 2


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    some = {0: recording(0.9), 4: recording(0.3)}
    words = changed(trained, folder / "words") / "model" / "tokenizer.json"
    words.write_text(words.read_text().replace('"cat"', '"kat"'))
    for name, sha256 in (("recorded", "1"), ("elsewhere", "2")):
        changed(trained, folder / name, points=some, sha256=sha256)
    (changed(trained, folder / "damaged") / "run.json").write_text('{"config": 3}')
    return folder


@pytest.mark.parametrize(
    ("names", "options", "parts"),
    [
        (
            ["recorded", "{trained}"],
            [],
            ["--runs", "nothing was measured while it trained", "analysis.every", "--data"],
        ),
        (["recorded", "elsewhere"], [], ["recorded and", "elsewhere", "not measured on the same sentences"]),
        (["recorded", "words"], ["--data", "{dev}"], ["words", "different tokenizers"]),
        (["damaged"], [], ["run.json: damaged"]),
        (["nowhere"], [], ["nowhere: no run.json there, so it is not a run's folder"]),
        (["recorded"], ["--data", "{dev}", "--column", "x"], ["--column x: of graded pairs the first sentences"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_refused_in_one_line_and_nothing_is_written(
    runs, trained, corpus, tmp_path, names, options, parts
):
    names = [name.format(trained=trained) if "{" in name else runs / name for name in names]
    options = [value.format(dev=corpus["dev"]) for value in options]
    done = call("analyze", "--runs", *names, *options, "--output", tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")
    assert [part for part in parts if part not in done.stderr] == [], done.stderr
    assert not (tmp_path / "out").exists()
