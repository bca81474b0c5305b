import json

import pytest

from simcse_jax.config.fields import default_config
from simcse_jax.evaluation.tasks import MEASURES, TASKS, TRANSFER
from simcse_jax.training.sweeps.metrics import METRICS
from simcse_jax.training.sweeps.runner import Run, extra_of
from simcse_jax.training.sweeps.scores import comparable, headings, note, read_scores
from simcse_jax.training.sweeps.variants import Variant

LINES = (
    {"step": 0, "eval/stsb_dev": 90.0},
    {"step": 5, "loss": 1.0, "seconds": 60.0},
    {"step": 5, "eval/stsb_dev": 71.0},
    {"step": 10, "eval/stsb_dev": 72.0, "seconds": 30.0},
    {"step": 15, "analysis": {"anisotropy": 0.25, "effective_rank": 9.5}},
    {"step": 15, "eval/stsb_dev": 72.0},
    {"step": 20, "analysis": {"anisotropy": 0.5, "l2_norm": 3.0}},
    {"step": 20, "eval/stsb_dev": 70.0},
)


def figures(value):
    """A task's part of a result: each figure differs from the others."""
    means = {"spearman": value + 2, "pearson": value + 3}
    weighted = {"spearman": value + 4, "pearson": value + 5}
    return {"spearman": value, "pearson": value + 1, "pairs": 9, "mean": means, "wmean": weighted, "subsets": {}}


def accuracies(value):
    return {"accuracy": value, "dev_accuracy": value - 10, "examples": 3, "folds": [{"accuracy": value}]}


@pytest.fixture
def finished(tmp_path):
    """Writes a finished run: its scores are read back."""

    def write(result, name="a", lines=LINES, **fields):
        config = default_config()
        config.eval.data = str(tmp_path)
        config.update_from_flattened_dict(fields)
        run = Run(name, 42, config, tmp_path / name)
        run.workdir.mkdir()
        about = {"config": json.loads(config.to_json()), "sha256": {}, "model": {"max_length": 32}}
        (run.workdir / "run.json").write_text(json.dumps(about))
        (run.workdir / "result.json").write_text(json.dumps(result))
        (run.workdir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run

    return write


def test_every_figure_of_a_run_is_read(finished):
    tasks = {task: figures(10.0 * number) for number, task in enumerate(TASKS, 1)}
    transfer = {task: accuracies(80.0 + number) for number, task in enumerate(TRANSFER)}
    extra = {"sickr_dev": 66.0, "alignment": 0.2, "uniformity": -2.5}
    averages = {name: 50.0 + place for place, name in enumerate(MEASURES)}
    found = {"retrieval": {"tiny": averages | {"queries": 6, "documents": 40}}, "retrieval_average": averages}
    found |= {"against_start": {"before": 70.0, "after": 71.0, "low": 0.1, "high": 2.0, "measure": "nDCG@10 × 100"}}
    run = finished(tasks | {"average": 40.0, "transfer": transfer} | found | extra)
    by_run, absent, measures = read_scores([run])
    (scores,) = by_run["a"].values()
    others = {"retrieval_dev", "held_out_dev"}  # STS-B chose the checkpoint
    assert scores.keys() == METRICS.keys() - others and absent == {}
    assert (scores["before"], scores["after"], measures) == (70.0, 71.0, ("nDCG@10 × 100",))
    assert headings([run.config], {}, measures)["after"] == "nDCG@10 × 100, after"
    assert {name: scores[f"retrieval_{name}"] for name in MEASURES} == averages
    assert [scores[f"STS13{kind}"] for kind in ("", "_pearson", "_mean", "_mean_pearson", "_wmean")] == [
        20,
        21,
        22,
        23,
        24,
    ]
    assert scores["STSBenchmark_wmean_pearson"] == 65
    averages = [scores[name] for name in ("sts_avg", "sts_avg_pearson", "sts_mean", "sts_wmean", "sts_wmean_pearson")]
    assert averages == [40, 41, 42, 44, 45]
    assert (scores["SST2"], scores["SST2_dev"], scores["transfer_avg"], scores["transfer_dev_avg"]) == (84, 74, 83, 73)
    # Step 0 is no candidate, and of equal scores the last one is the best checkpoint.
    assert (scores["stsb_dev"], scores["best_step"], scores["training_minutes"]) == (72.0, 15, 1.5)
    assert (scores["anisotropy"], scores["effective_rank"], scores["steps"]) == (0.25, 9.5, 20)
    assert (scores["sickr_dev"], scores["alignment"], scores["uniformity"]) == (66.0, 0.2, -2.5)


def test_a_checkpoint_that_took_the_place_of_a_damaged_one_has_its_own_scores(finished):
    (scores,) = read_scores([finished({"STS12": figures(1.0), "best_step": 20})]).by_run["a"].values()
    assert (scores["stsb_dev"], scores["best_step"], scores["anisotropy"]) == (70.0, 20, 0.5)
    (scores,) = read_scores([finished({"STS12": figures(1.0), "best_step": 7}, "b")]).by_run["b"].values()
    assert scores["best_step"] == 7 and "stsb_dev" not in scores  # it was saved without an evaluation
    (scores,) = read_scores([finished({"STS12": figures(1.0), "best_step": 0}, "c")]).by_run["c"].values()
    start = next(line for line in LINES if not line["step"])
    assert (scores["stsb_dev"], scores["best_step"]) == (
        start["eval/stsb_dev"],
        0,
    )  # it was kept, since training did not help


def test_averages_are_over_the_tasks_that_all_runs_have(finished):
    six = {task: figures(70.0) for task in TASKS if task != "STS15"}
    runs = [
        finished({task: figures(60.0) for task in TASKS} | {"average": 60.0}, "all"),
        finished(six | {"STS12": figures(10.0), "transfer": {"MR": accuracies(81.0)}}, "some"),
        finished({}, "none"),
    ]
    found = read_scores(runs)
    assert found.by_run["some"][42]["sts_avg"] == pytest.approx(60.0)
    assert found.by_run["all"][42]["sts_avg"] == 60.0 and found.by_run["all"][42]["STS15"] == 60.0
    assert found.by_run["some"][42]["transfer_avg"] == 81.0
    assert not found.by_run["none"][42].keys() & {"sts_avg", "transfer_avg"}
    assert found.absent["sts_wmean"] == ("STS15",) and found.absent["transfer_avg"] == TRANSFER[1:]
    shown = {name: found.absent[name] for name in ("sts_avg", "transfer_avg")}
    names = headings([runs[0].config], shown)
    assert (names["sts_avg"], names["transfer_avg"]) == ("STS avg., 6 of 7", "transfer avg., 1 of 7")
    assert note(shown) == (
        "Averages, the paper's too, are over the tasks that are there, without STS15, CR, SUBJ, MPQA, SST, TREC, MRPC."
    )
    assert note({}) == ""
    runs[0].config.eval.transfer_protocol = "pytorch"
    paper = Variant("a", {}, {"sts_avg": 76.25, "STS12": 70.0, "transfer_avg": 85.0, "stsb_dev": 82.5})
    assert comparable(paper, runs[0].config, shown).paper == {"STS12": 70.0, "stsb_dev": 82.5}


def test_an_average_of_some_tasks_stands_next_to_the_paper_s_of_the_same_tasks():
    """SimCSE, Table C.1: over seven tasks flow is better fit on NLI, over the six without STS15 on the target."""
    scores = {
        "flow (NLI)": (58.40, 67.10, 60.85, 75.16, 71.22, 68.66, 64.47, 66.55),
        "flow (target)": (53.15, 78.38, 66.02, 62.09, 70.84, 71.70, 61.97, 66.31),
    }
    papers = {name: dict(zip((*TASKS, "sts_avg"), values, strict=True)) for name, values in scores.items()}
    config, absent = default_config(), {"sts_avg": ("STS15",)}
    found = {name: comparable(Variant(name, {}, paper), config, absent).paper for name, paper in papers.items()}
    assert found["flow (NLI)"] == papers["flow (NLI)"] | {"sts_avg": pytest.approx(65.117, abs=1e-3)}
    assert found["flow (target)"]["sts_avg"] == pytest.approx(67.01, abs=1e-3)
    config.eval.tasks = TASKS[:2]
    assert comparable(Variant("a", {}, papers["flow (NLI)"]), config).paper["sts_avg"] == pytest.approx(62.75)


def test_a_run_of_an_earlier_version_has_fewer_figures(finished):
    old = {task: {"spearman": 50.0, "pairs": 9} for task in TASKS}
    lines = [line for line in LINES if "analysis" not in line]
    scores = read_scores([finished(old | {"average": 50.0}, lines=lines)]).by_run["a"][42]
    assert scores.keys() == {*TASKS, "sts_avg", "stsb_dev", "best_step", "steps", "training_minutes"}


def test_a_run_without_what_its_columns_need_is_not_done(finished):
    assert not finished({"STS12": figures(1.0)}, **{"eval.extra": ("geometry",)}).is_done()
    assert finished({"alignment": 0.1, "uniformity": -1.0}, "b", **{"eval.extra": ("geometry",)}).is_done()


def test_development_pairs_are_no_test_task(finished):
    """Without test tasks STS-B's development pairs are scored at the end, under the name of the task."""
    scores = read_scores([finished({"STSBenchmark": figures(80.0)}, **{"eval.tasks": ()})]).by_run["a"][42]
    assert "STSBenchmark" not in scores and scores["stsb_dev"] == 72.0


def test_a_post_processing_has_its_own_development_score(finished):
    after = {"eval.postprocess": "whitening", "eval.postprocess_data": "target"}
    run = finished({"STS12": figures(1.0), "development": 60.0}, **after)
    assert read_scores([run]).by_run["a"][42]["stsb_dev"] == 60.0


def test_a_checkpoint_chosen_by_sickr_has_stsb_s_score_only_where_it_was_asked_for(finished):
    scored = [line for line in LINES if "eval/stsb_dev" in line]
    lines = [{"step": line["step"], "eval/sickr_dev": line["eval/stsb_dev"]} for line in scored]
    chosen = {"eval.development": "sickr"}
    scores = read_scores([finished({"STS12": figures(9.0)}, lines=lines, **chosen)]).by_run["a"][42]
    assert (scores["sickr_dev"], scores["best_step"]) == (72.0, 15) and "stsb_dev" not in scores
    both = finished({"STS12": figures(9.0), "stsb_dev": 60.0}, "b", lines=lines, **chosen)
    assert read_scores([both]).by_run["b"][42]["stsb_dev"] == 60.0
    columns = ("stsb_dev", "sickr_dev", "alignment")
    assert extra_of(both.config, columns) == ["stsb_dev", "geometry"]
    assert extra_of(default_config(), columns) == ["sickr_dev", "geometry"]


def test_a_run_that_trains_nothing_has_no_steps(finished):
    nothing = {"train.epochs": 0, "train.max_steps": 0}
    scores = read_scores([finished({}, lines=LINES[:1], **nothing)]).by_run["a"][42]
    assert scores == {"stsb_dev": 90.0}


def test_the_paper_s_averages_are_compared_only_with_those_of_the_same_tasks():
    config = default_config()
    config.eval.transfer_protocol = "pytorch"
    variant = Variant("a", {}, {"sts_avg": 76.25, "sts_wmean": 76.0, "stsb_dev": 82.5, "transfer_avg": 85.0})
    assert comparable(variant, config) == variant
    config.eval.tasks = ("STS12",)
    assert comparable(variant, config).paper == {"stsb_dev": 82.5, "transfer_avg": 85.0}


@pytest.mark.parametrize(
    ("protocol", "kept"),
    [("pytorch", {"MR", "transfer_avg", "MR_dev"}), ("pytorch_fast", {"MR_dev"}), ("sklearn", set())],
)
def test_the_paper_s_transfer_values_stand_next_to_those_of_its_protocol(protocol, kept):
    """SentEval's PyTorch classifier; which of its settings scored development sets is open."""
    config, variant = default_config(), Variant("a", {}, {"MR": 81.0, "transfer_avg": 85.0, "MR_dev": 82.0})
    config.eval.transfer_protocol = protocol
    assert set(comparable(variant, config).paper) == kept


def test_the_paper_s_values_of_stsb_are_not_set_next_to_other_pairs(tmp_path):
    config, variant = default_config(), Variant("a", {}, {"sts_avg": 76.25, "stsb_dev": 82.5, "alignment": 0.2})
    folder = default_config()
    folder.eval.data = str(tmp_path)
    assert headings([folder], {})["stsb_dev"] == "STS-B dev"
    assert comparable(variant, folder) == variant
    config.eval.data = str(tmp_path / "mine.tsv")
    (tmp_path / "mine.tsv").touch()
    assert comparable(variant, config).paper == {"sts_avg": 76.25}
    assert headings([config, config], {})["stsb_dev"] == "mine.tsv"
    assert headings([folder, config], {})["stsb_dev"] == "STS-B dev, mine.tsv"
