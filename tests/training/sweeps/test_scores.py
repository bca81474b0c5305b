import itertools
import json

import pytest
from support.listed import record

from simcse_jax.choices import MEASURES, TASKS, TRANSFER
from simcse_jax.config.fields import default_config
from simcse_jax.training.sweeps.metrics import METRICS
from simcse_jax.training.sweeps.runner import SweepRun, choose_extra
from simcse_jax.training.sweeps.scores import comparable, headings, note_missing_tasks, read_scores
from simcse_jax.training.sweeps.variants import Variant

LINES = (
    {"step": 0, "eval/stsb_dev": 90.0}, {"step": 5, "loss": 1.0, "seconds": 60.0}, {"step": 5, "eval/stsb_dev": 71.0},
    {"step": 10, "eval/stsb_dev": 72.0, "seconds": 30.0}, {"step": 15, "eval/stsb_dev": 72.0},
    {"step": 15, "analysis": {"anisotropy": 0.25, "effective_rank": 9.5}}, {"step": 20, "eval/stsb_dev": 70.0},
    {"step": 20, "analysis": {"anisotropy": 0.5, "l2_norm": 3.0}},
)  # fmt: skip


def figures(value):
    means = {"spearman": value + 2, "pearson": value + 3}
    weighted = {"spearman": value + 4, "pearson": value + 5}
    return {"spearman": value, "pearson": value + 1, "pairs": 9, "mean": means, "wmean": weighted, "subsets": {}}


def accuracies(value):
    return {"accuracy": value, "dev_accuracy": value - 10, "examples": 3, "folds": [{"accuracy": value}]}


@pytest.fixture
def finished(tmp_path):
    def write(result, name="a", lines=LINES, **fields):
        config = default_config()
        config.eval.data = str(tmp_path)
        config.update_from_flattened_dict(fields)
        run = SweepRun(name, 42, config, tmp_path / name)
        run.workdir.mkdir()
        (run.workdir / "run.json").write_text(json.dumps(record(config)))
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
    sts13 = [scores[f"STS13{kind}"] for kind in ("", "_pearson", "_mean", "_mean_pearson", "_wmean")]
    assert sts13 == [20, 21, 22, 23, 24] and scores["STSBenchmark_wmean_pearson"] == 65
    averages = [scores[name] for name in ("sts_avg", "sts_avg_pearson", "sts_mean", "sts_wmean", "sts_wmean_pearson")]
    assert averages == [40, 41, 42, 44, 45]
    assert (scores["SST2"], scores["SST2_dev"], scores["transfer_avg"], scores["transfer_dev_avg"]) == (84, 74, 83, 73)
    # Step 0 is no candidate, and of equal scores the last one is the best checkpoint.
    assert (scores["stsb_dev"], scores["best_step"], scores["training_minutes"]) == (72.0, 15, 1.5)
    assert (scores["anisotropy"], scores["effective_rank"], scores["steps"]) == (0.25, 9.5, 20)
    assert (scores["sickr_dev"], scores["alignment"], scores["uniformity"]) == (66.0, 0.2, -2.5)


@pytest.fixture
def scores_of(finished):
    numbers = itertools.count()

    def scores(result, lines=LINES, **fields):
        run = finished(result, f"run{next(numbers)}", lines, **fields)
        return read_scores([run]).by_run[run.variant][42]

    return scores


def test_averages_are_over_the_tasks_that_all_runs_have_and_a_run_without_what_its_columns_need_is_not_done(finished):
    six = {task: figures(70.0) for task in TASKS if task != "STS15"}
    runs = [finished({task: figures(60.0) for task in TASKS} | {"average": 60.0}, "all"), finished({}, "none")]
    runs += [finished(six | {"STS12": figures(10.0), "transfer": {"MR": accuracies(81.0)}}, "some")]
    found = read_scores(runs)
    each, some, none = (found.by_run[name][42] for name in ("all", "some", "none"))
    assert some["sts_avg"] == pytest.approx(60.0) and some["transfer_avg"] == 81.0
    assert each["sts_avg"] == 60.0 and each["STS15"] == 60.0 and not none.keys() & {"sts_avg", "transfer_avg"}
    assert found.absent["sts_wmean"] == ("STS15",) and found.absent["transfer_avg"] == TRANSFER[1:]
    shown = {name: found.absent[name] for name in ("sts_avg", "transfer_avg")}
    names = headings([runs[0].config], shown)
    assert (names["sts_avg"], names["transfer_avg"]) == ("STS avg., 6 of 7", "transfer avg., 1 of 7")
    assert note_missing_tasks(shown).endswith(
        "over the tasks that are there, without STS15, CR, SUBJ, MPQA, SST, TREC, MRPC."
    )
    assert note_missing_tasks({}) == ""
    runs[0].config.eval.transfer_protocol = "pytorch"
    paper = Variant("a", {}, {"sts_avg": 76.25, "STS12": 70.0, "transfer_avg": 85.0, "stsb_dev": 82.5})
    assert comparable(paper, runs[0].config, shown).paper == {"STS12": 70.0, "stsb_dev": 82.5}
    geometry = {"eval.extra": ("geometry",)}
    assert not finished({"STS12": figures(1.0)}, **geometry).is_done()
    assert finished({"alignment": 0.1, "uniformity": -1.0}, "b", **geometry).is_done()


def test_what_a_run_has_depends_on_its_version_and_config_and_on_which_checkpoint_is_the_best(scores_of):
    old = {task: {"spearman": 50.0, "pairs": 9} for task in TASKS} | {"average": 50.0}  # of an earlier version
    trained = {"stsb_dev", "best_step", "steps", "training_minutes"}
    scores = scores_of(old, [line for line in LINES if "analysis" not in line])
    assert scores.keys() == {*TASKS, "sts_avg", *trained}
    # Without test tasks STS-B's development pairs are scored at the end, under the name of the task.
    scores = scores_of({"STSBenchmark": figures(80.0)}, **{"eval.tasks": ()})
    assert "STSBenchmark" not in scores and scores["stsb_dev"] == 72.0
    after = {"eval.postprocess": "whitening", "eval.postprocess_data": "target"}
    assert scores_of({"STS12": figures(1.0), "development": 60.0}, **after)["stsb_dev"] == 60.0
    assert scores_of({"dev": figures(55.0)}, **after, **{"eval.tasks": ()})["stsb_dev"] == 55.0
    nothing = {"train.epochs": 0, "train.max_steps": 0}
    assert scores_of({}, LINES[:1], **nothing) == {"stsb_dev": 90.0}
    scores = scores_of({"best_step": 20})
    assert (scores["stsb_dev"], scores["best_step"], scores["anisotropy"]) == (70.0, 20, 0.5)
    scores = scores_of({"best_step": 7})
    assert scores["best_step"] == 7 and "stsb_dev" not in scores  # it was saved without an evaluation
    scores = scores_of({"best_step": 0})
    assert (scores["stsb_dev"], scores["best_step"]) == (90.0, 0)  # it was kept, since training did not help
    chosen = {"eval.development": "sickr"}
    lines = [{"step": one["step"], "eval/sickr_dev": one["eval/stsb_dev"]} for one in LINES if "eval/stsb_dev" in one]
    scores = scores_of({"STS12": figures(9.0)}, lines, **chosen)
    assert (scores["sickr_dev"], scores["best_step"]) == (72.0, 15) and "stsb_dev" not in scores
    assert scores_of({"STS12": figures(9.0), "stsb_dev": 60.0}, lines, **chosen)["stsb_dev"] == 60.0
    columns, config = ("stsb_dev", "sickr_dev", "alignment"), default_config()
    assert choose_extra(config, columns) == ["sickr_dev", "geometry"]
    config.eval.development = "sickr"
    assert choose_extra(config, columns) == ["stsb_dev", "geometry"]
    lines = [{"step": step, "eval/retrieval_ndcg@10": value} for step, value in ((0, 9.0), (5, 30.0), (10, 20.0))]
    result = {"retrieval_average": {"ndcg@10": 25.0, "recall@100": 60.0}}
    found = scores_of(result, lines, **{"eval.development": "retrieval"})
    averages = {"retrieval_ndcg@10": 25.0, "retrieval_recall@100": 60.0}
    assert found == {"retrieval_dev": 30.0, "best_step": 5, "steps": 10} | averages


def test_the_paper_s_values_stand_next_to_those_of_the_same_tasks_protocol_and_pairs_alone(tmp_path):
    config = default_config()
    paper = {"sts_avg": 76.25, "sts_wmean": 76.0, "stsb_dev": 82.5, "transfer_avg": 85.0, "MR": 81.0, "MR_dev": 82.0}
    kept = {"pytorch": {"MR", "transfer_avg", "MR_dev"}, "pytorch_fast": {"MR_dev"}, "sklearn": set()}
    for protocol, names in kept.items():
        config.eval.transfer_protocol = protocol
        found = comparable(Variant("a", {}, paper), config).paper
        assert set(found) == names | {"sts_avg", "sts_wmean", "stsb_dev"} and found.items() <= paper.items()
    config.eval.transfer_protocol, config.eval.tasks = "pytorch", ("STS12",)
    assert set(comparable(Variant("a", {}, paper), config).paper) == kept["pytorch"] | {"stsb_dev"}
    # SimCSE, Table C.1: over seven tasks flow is better fit on NLI, over six of them on the target.
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
    config, variant = default_config(), Variant("a", {}, {"sts_avg": 76.25, "stsb_dev": 82.5, "alignment": 0.2})
    folder = default_config()
    folder.eval.data = str(tmp_path)
    assert headings([folder], {})["stsb_dev"] == "STS-B dev" and comparable(variant, folder) == variant
    config.eval.data = str(tmp_path / "mine.tsv")
    (tmp_path / "mine.tsv").touch()
    assert comparable(variant, config).paper == {"sts_avg": 76.25}
    assert headings([config, config], {})["stsb_dev"] == "mine.tsv"
    assert headings([folder, config], {})["stsb_dev"] == "STS-B dev, mine.tsv"
