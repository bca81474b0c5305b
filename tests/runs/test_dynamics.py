import json
import shutil

import numpy as np
import pytest
from support import call, refused, sentences

from simcse_jax.errors import UserError
from simcse_jax.evaluation import geometry, sts
from simcse_jax.evaluation.analysis.dynamics import FIELDS
from simcse_jax.host.storage import as_path
from simcse_jax.runs.dynamics import checkpoint_encoders, folder_name, kept_steps, read_records
from simcse_jax.runs.metrics_file import read_metrics
from simcse_jax.simcse import SimCSE

RECORDED = ("self_similarity", "intra_sentence_similarity", *FIELDS)
PLACE = {"alignment": 0.25, "uniformity": -1.5, "anisotropy": 0.5}


def changed(workdir, target, points=(), sha256=None):
    """A copy of a run with what was measured while it trained."""
    shutil.copytree(workdir, target)
    about = json.loads((target / "run.json").read_text())
    about["sha256"] |= {"analysis.data": sha256} if sha256 else {}
    (target / "run.json").write_text(json.dumps(about))
    with (target / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": step, "analysis": point}) + "\n" for step, point in dict(points).items())
    return target


@pytest.mark.slow
def test_kept_checkpoints_are_measured_and_drawn(trained, corpus, tmp_path):
    done = call("analyze", "--runs", trained, "--data", corpus["dev"], "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "out" / "dynamics.json").read_text())
    ((_, run),) = found["runs"].items()
    points = run["points"]
    assert run["workdir"] == str(trained) and [point["step"] for point in points] == [0, *kept_steps(trained)]
    assert (found["about"]["sentences"], found["about"]["pairs_of_alignment"]) == (20, 4)
    pairs = sts.read_graded_pairs(corpus["dev"])
    for kept, point in zip(checkpoint_encoders(as_path(str(trained))), points, strict=True):
        one, two, rows = (kept.embed(side) for side in (pairs.first[-4:], pairs.second[-4:], pairs.first))
        assert point["alignment"] == pytest.approx(geometry.alignment(one, two), abs=1e-5)
        assert point["alignment_term"] == pytest.approx((point["alignment"] / 2 - 1) / 0.05, abs=1e-4)  # of unit length
        assert point["uniformity"] == pytest.approx(geometry.uniformity(rows), abs=1e-5)
        assert f"step {point['step']}: anisotropy {point['anisotropy']:.4f}" in done.stdout
    assert f"{trained.name}, last layer, step 0 → " in done.stdout.splitlines()[0]  # the conclusion
    assert len({point["l2_norm"] for point in points}) == len(points)
    assert {path.name for path in (tmp_path / "out").glob("*.svg")} == {f"{field}.svg" for field in FIELDS}


@pytest.mark.slow
def test_measurements_made_during_training_are_drawn(trained, tmp_path):
    start = dict.fromkeys(RECORDED, 0.9)
    ends = {"one": dict.fromkeys(RECORDED, 0.3), "two": dict.fromkeys(RECORDED, 0.2)}
    one, two = (changed(trained, tmp_path / name, {0: start, 4: end}, "1") for name, end in ends.items())
    done = call("analyze", "--runs", one, two, "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "out" / "dynamics.json").read_text())
    for name, end in ends.items():
        assert found["runs"][name]["points"] == [{"step": 0, **start}, {"step": 4, **end}]
    assert found["data"] == "dev.tsv" and "analysis.every" in found["about"]["source"]
    assert len(read_metrics(as_path(str(one)))) == len(read_metrics(as_path(str(trained)))) + 2


def test_runs_that_were_measured_otherwise_are_refused_and_nothing_is_written(trained, corpus, tmp_path):
    some = {0: dict.fromkeys(RECORDED, 0.9), 4: dict.fromkeys(RECORDED, 0.3)}
    runs = {name: changed(trained, tmp_path / name, points=some, sha256=name) for name in ("recorded", "elsewhere")}
    words = changed(trained, tmp_path / "words") / "model" / "tokenizer.json"
    words.write_text(words.read_text().replace('"cat"', '"kat"'))
    recorded_, data = runs["recorded"], ["--data", corpus["dev"]]
    for names, options, part in (
        ([recorded_, trained], [], "nothing was measured while it trained"),
        ([recorded_, runs["elsewhere"]], [], "not measured on the same sentences"),
        ([recorded_, tmp_path / "words"], data, "different tokenizers"),
    ):
        refused(call("analyze", "--runs", *names, *options, "--output", tmp_path / "out"), part)
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_every_checkpoint_and_the_start_if_it_is_there_are_encoded_with_their_own_parameters(trained, tmp_path, capsys):
    latest = shutil.copytree(trained, tmp_path / "latest")
    *before, last = kept_steps(trained)
    for step in before:
        shutil.rmtree(latest / "checkpoints" / str(step))
    kept, some = list(checkpoint_encoders(as_path(str(trained)))), sentences(12, seed=5)
    embeddings = {each.step: each.embed(some) for each in kept}
    model = SimCSE(str(latest))
    assert model.use_head and np.allclose(embeddings[last], model.encode(some), atol=1e-6)
    assert not np.allclose(embeddings[last], embeddings[before[-1]], atol=1e-4)
    # Step 0 is the start of the run, with the fresh head that its seed gives: the run has scored it.
    step, embed, temperature = kept[0]
    before = next(line["eval/dev"] for line in read_metrics(as_path(str(trained))) if "eval/dev" in line)
    assert (step, temperature) == (0, 0.05)
    data = json.loads((trained / "run.json").read_text())["config"]["eval"]["data"]
    assert geometry.measure(embed, geometry.read(data)).spearman == pytest.approx(before, abs=1e-3)
    workdir = shutil.copytree(trained, tmp_path / "moved")
    about = json.loads((workdir / "run.json").read_text())
    about["sha256"]["model.init_from"] = "0" * 64
    for name, message in (
        (about["config"]["model"]["init_from"], "other weights than the run started from"),
        ("no/such/model", "no/such/model"),
    ):
        about["config"]["model"]["init_from"] = name
        (workdir / "run.json").write_text(json.dumps(about))
        assert [kept.step for kept in checkpoint_encoders(as_path(str(workdir)))] == kept_steps(trained)
        assert message in capsys.readouterr().out
    (workdir / "checkpoints" / str(kept_steps(workdir)[0])).rename(workdir / "checkpoints" / "0")
    steps = [kept.step for kept in checkpoint_encoders(as_path(str(workdir)))]
    assert steps == kept_steps(workdir) and steps[0] == 0  # a start that was saved is measured once


@pytest.fixture
def run(trained, tmp_path):
    """Makes a run's folder with changed fields, the lines of its metrics, and SHA-256 of what it read."""

    def make(name, lines, prints=(), **fields):
        about = json.loads((trained / "run.json").read_text())
        about["sha256"] |= dict(prints)
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
    named = {folder.name: folder for folder in folders}
    return read_records(named, {name: labels.get(name, "") for name in named})


def test_runs_that_differ_in_the_seed_alone_are_a_group_and_a_spectrum_is_read_where_it_was_recorded(run):
    lines = [*scores(50.0, 60.5), {"step": 10, "loss": 1.0}, {"step": 10, "analysis": PLACE}]
    one, two = run("a", lines, seed=1), run("b", scores(51.0, 62.0), seed=2)
    other = run("c", scores(40.0), seed=1, model__dropout=0.5)
    found = read(one, two, other)
    assert found.groups == {"a": ["a", "b"], "c": ["c"]}
    assert found.scores == {"a": {0: 50.0, 10: 60.5}, "b": {0: 51.0, 10: 62.0}, "c": {0: 40.0}}
    assert found.plane == {"a": {10: {"alignment": 0.25, "uniformity": -1.5}}}
    assert (found.scored_on, found.measured_on, found.spectra) == ("stsb_dev", "dev.tsv", {})
    assert read(one, two, a="mine").groups == {"a": ["a"], "b": ["b"]}  # labels separate
    # Rows of a sweep may differ in their post-processing alone, with which nothing is trained.
    rows = [(row, seed) for row in ("", "flow") for seed in (1, 2)]
    folders = [run(f"{row} {seed}", scores(50.0), seed=seed, eval__postprocess=row) for row, seed in rows]
    assert list(read(*folders).groups.values()) == [[" 1", " 2"], ["flow 1", "flow 2"]]
    # Also without positive pairs, which are no reason then to refuse to draw.
    numbers = {"uniformity": -1.5, "top_eigenvalue": 2.0, "effective_rank": 1.9}
    lines = [{"step": 10, "analysis": numbers, "singular_values": [1.0, 0.5]}, {"step": 20, "analysis": numbers}]
    found = read(run("d", lines))
    assert found.plane == {} and list(found.spectra["d"]) == [10]
    spectrum = found.spectra["d"][10]
    assert spectrum.numbers == {"top_eigenvalue": 2.0, "effective_rank": 1.9}
    assert spectrum.singular_values.tolist() == [1.0, 0.5]
    found = read(run("e", [*scores(5.0), {"step": 0, "analysis": {"uniformity": -1.0}}]))
    assert found.plane == found.spectra == {} and found.scores == {"e": {0: 5.0}}
    with pytest.raises(UserError, match="--runs f: nothing was recorded while it trained"):
        read(run("f", [{"step": 0, "analysis": {"uniformity": -1.0}}]))
    names = {"runs/x/no dropout/seed42": "runs/x/no dropout", "runs/x/seed42/": "runs/x"}
    names |= {name: name for name in ("seed42", "runs/seeds")}
    assert {name: folder_name(name) for name in names} == names


def test_runs_of_other_scores_are_not_drawn_together_and_those_of_another_model_are_no_seeds_of_one_another(run):
    news, ranked = {"eval.data": "news"}, scores(5.0, task="retrieval_ndcg@10")
    one = run("a", scores(50.0), news, seed=1)
    with pytest.raises(UserError, match="--runs a and b were scored on different data"):
        read(one, run("b", scores(90.0), {"eval.data": "medical"}, seed=2))
    other = run("c", scores(90.0), news | {"model.init_from": "another"}, seed=2)
    assert read(one, other).groups == {"a": ["a"], "c": ["c"]}
    better = run("d", scores(60.0), news, seed=3, eval__encoder="better")  # of two encoders, not the first one's
    assert read(one, better).groups == {"a": ["a"], "d": ["d"]}
    found = [run(f"r{number}", ranked, {"eval.retrieval.data": f"{number}"}) for number in (1, 2)]
    assert read(found[0]).scored_on == "retrieval_ndcg@10"
    with pytest.raises(UserError, match="--runs r1 and r2 were scored on different data"):
        read(*found)
    for name, second, message in (
        ("e", [{"step": 1, "loss": 2.0}], "--runs e: nothing was recorded while it trained"),
        ("f", scores(1.0, task="mine"), "--runs a and f were scored on different data"),
    ):
        with pytest.raises(UserError, match=message):
            read(one, run(name, second, seed=2))
