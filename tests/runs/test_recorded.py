import json

import pytest

from simcse_jax.errors import UserError
from simcse_jax.runs.recorded import folder_name, read_records

PLACE = {"alignment": 0.25, "uniformity": -1.5, "anisotropy": 0.5}


@pytest.fixture
def run(trained, tmp_path):
    """Makes a run's folder with changed fields and the lines of its metrics."""

    def make(name, lines, **fields):
        about = json.loads((trained / "run.json").read_text())
        for field, value in fields.items():
            section, _, last = field.rpartition("__")
            (about["config"][section] if section else about["config"])[last] = value
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text(json.dumps(about))
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tmp_path / name

    return make


def scores(*values, task="stsb_dev"):
    return [{"step": 10 * number, f"eval/{task}": value} for number, value in enumerate(values)]


def read(*folders, **labels):
    return read_records(
        {folder.name: folder for folder in folders}, {folder.name: labels.get(folder.name, "") for folder in folders}
    )


def test_runs_that_differ_in_the_seed_alone_are_a_group(run):
    lines = [*scores(50.0, 60.5), {"step": 10, "loss": 1.0}, {"step": 10, "analysis": PLACE}]
    one, two = run("a", lines, seed=1), run("b", scores(51.0, 62.0), seed=2)
    other = run("c", scores(40.0), seed=1, model__dropout=0.5)
    found = read(one, two, other)
    assert found.groups == {"a": ["a", "b"], "c": ["c"]}
    assert found.scores == {"a": {0: 50.0, 10: 60.5}, "b": {0: 51.0, 10: 62.0}, "c": {0: 40.0}}
    assert found.plane == {"a": {10: {"alignment": 0.25, "uniformity": -1.5}}}
    assert (found.scored_on, found.measured_on) == ("stsb_dev", "dev.tsv")
    assert read(one, two, a="mine").groups == {"a": ["a"], "b": ["b"]}  # labels separate


def test_the_same_run_again_is_no_other_seed(run):
    """Rows of a sweep may differ in their post-processing alone, with which nothing is trained."""
    folders = [
        run(f"{row} {seed}", scores(50.0), seed=seed, eval__postprocess=row) for row in ("", "flow") for seed in (1, 2)
    ]
    assert list(read(*folders).groups.values()) == [[" 1", " 2"], ["flow 1", "flow 2"]]


def test_runs_that_retrieval_chose_are_drawn_together_on_the_same_data_alone(run):
    folders = [run(name, scores(5.0, task="retrieval_ndcg@10")) for name in ("a", "b")]
    for folder, fingerprint in zip(folders, "01", strict=True):
        with_contents(folder, eval__retrieval__data=fingerprint)
    assert read(folders[0]).scored_on == "retrieval_ndcg@10"
    with pytest.raises(UserError, match="--runs a and b were scored on different data of retrieval; draw them sep"):
        read(*folders)


def with_contents(folder, **contents):
    """The run's folder, with SHA-256 of what it read."""
    about = json.loads((folder / "run.json").read_text())
    about["sha256"] |= {field.replace("__", "."): value for field, value in contents.items()}
    (folder / "run.json").write_text(json.dumps(about))
    return folder


def test_runs_of_other_scored_pairs_or_of_another_model_are_no_seeds_of_one_another(run):
    """The files have the same names: the contents differ."""
    one = with_contents(run("a", scores(50.0), seed=1), eval__data="news")
    other = with_contents(run("b", scores(90.0), seed=2), eval__data="medical")
    with pytest.raises(UserError, match="--runs a and b were scored on different contents of eval"):
        read(one, other)
    other = with_contents(other, eval__data="news", model__init_from="another")
    assert read(one, other).groups == {"a": ["a"], "b": ["b"]}
    better = run("c", scores(60.0), seed=3, eval__encoder="better")  # of two encoders, not the first one's
    assert read(one, with_contents(better, eval__data="news")).groups == {"a": ["a"], "c": ["c"]}


def test_records_without_alignment_have_no_place(run):
    found = read(run("a", [*scores(5.0), {"step": 0, "analysis": {"uniformity": -1.0}}]))
    assert found.plane == {} and found.scores == {"a": {0: 5.0}}
    with pytest.raises(UserError, match="--runs b: there is nothing to draw: alignment was not measured"):
        read(run("b", [{"step": 0, "analysis": {"uniformity": -1.0}}]))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (scores(1.0), [{"step": 1, "loss": 2.0}], "--runs b: nothing was recorded while it trained"),
        (scores(1.0), scores(1.0, task="mine"), "--runs a was scored on stsb_dev, b on mine; draw them separately"),
        (scores(1.0), [*scores(1.0), *scores(1.0, task="x")], "has scores of stsb_dev and x; one is expected"),
    ],
)
def test_runs_that_cannot_be_drawn_together(run, first, second, message):
    with pytest.raises(UserError, match=message):
        read(run("a", first), run("b", second, seed=2))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("runs/x/no dropout/seed42", "runs/x/no dropout"),
        ("runs/x/seed42/", "runs/x"),
        ("seed42", "seed42"),
        ("runs/seeds", "runs/seeds"),
    ],
)
def test_a_sweep_s_run_is_named_like_its_row(name, shown):
    assert folder_name(name) == shown
