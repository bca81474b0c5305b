import json
import math
import shutil

import numpy as np
import pytest
import scipy.spatial
from support import call, refused
from support.pictures import texts

import simcse_jax
from simcse_jax.choices import TASKS
from simcse_jax.commands import geometry, verbs
from simcse_jax.errors import UserError
from simcse_jax.evaluation import geometry as measures
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.postprocess import whitening
from simcse_jax.runs.dynamics import kept_steps
from simcse_jax.simcse import SimCSE


def scored(encode, corpus) -> tuple[float, float]:
    """Alignment and uniformity of the graded pairs, worked out without the module."""
    pairs = measures.read(str(corpus["dev"]))
    first, second = (np.asarray(encode(side), np.float64) for side in (pairs.first, pairs.second))
    first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second))
    distances = [sum((a - b) ** 2) for a, b, gold in zip(first, second, pairs.gold, strict=True) if gold > 4]
    everything = np.concatenate([first, second])
    apart = [sum((a - b) ** 2) for number, a in enumerate(everything) for b in everything[number + 1 :]]
    return float(np.mean(distances)), math.log(np.mean(np.exp(-2 * np.array(apart))))


def assert_files(folder, *pictures):
    expected = {f"{name}.{kind}" for name in pictures for kind in ("png", "svg")} | {"geometry.json", "report.html"}
    assert {path.name for path in folder.iterdir()} - {"sentences.json"} == expected


def test_models_are_measured_and_drawn(tmp_path, tiny_bert, corpus):
    output = tmp_path / "new" / "folder"
    given = ("--models", tiny_bert, f"{tiny_bert}@1@avg", "--data", corpus["dev"])
    done = call("geometry", *given, "--output", output, "--batch-size", 8)
    assert (done.returncode, done.stderr) == (0, "")
    assert_files(output, "cosines", "models", "singular_values")
    found = json.loads((output / "geometry.json").read_text())
    assert (found["data"], found["pairs"], found["positives"]) == ("dev.tsv", 20, 4)
    assert list(found["models"]) == ["tiny-bert", "tiny-bert, 1 layer, avg"]
    second = SimCSE(str(tiny_bert), pooler="avg", num_layers=1)
    for label, encoder in (("tiny-bert", SimCSE(str(tiny_bert))), ("tiny-bert, 1 layer, avg", second)):
        model = found["models"][label]
        assert (model["alignment"], model["uniformity"]) == pytest.approx(scored(encoder.encode, corpus), abs=1e-5)
        assert (model["pooler"], len(model["singular_values"])) == (encoder.pooler, 32)
        assert [group["pairs"] for group in model["groups"].values()] == [4, 4, 4, 4, 4]
        assert {len(group["density"]) for group in model["groups"].values()} == {len(found["density_at"])}
        assert f"{label}: alignment {model['alignment']:.4f}" in done.stdout
    assert "top_eigenvalue" in found["models"]["tiny-bert"] and "alignment_term" not in found["models"]["tiny-bert"]


@pytest.mark.slow
def test_the_checkpoints_of_a_run_are_measured_and_drawn(tmp_path, tiny_bert, trained, corpus):
    given = ("--models", tiny_bert, "--runs", trained, "--data", corpus["dev"])
    done = call("geometry", *given, "--output", tmp_path, "--batch-size", 8)
    assert (done.returncode, done.stderr) == (0, "")
    assert_files(tmp_path, "cosines", "models", "runs", "singular_values", "spectrum", "terms")
    compared = json.loads((tmp_path / "sentences.json").read_text())
    last = f"trained, step {kept_steps(trained)[-1]}"
    assert list(compared["models"]) == ["tiny-bert", "trained, step 0", last]
    assert compared["changes"] == [[last, "trained, step 0"]]
    assert f"trained, step 0 → {last}: unrelated sentences" in done.stdout
    found = json.loads((tmp_path / "geometry.json").read_text())
    checkpoints = found["runs"]["trained"]["checkpoints"]
    assert [point["step"] for point in checkpoints] == [0, *kept_steps(trained)]
    assert len({point["alignment"] for point in checkpoints}) == len(checkpoints) > 2
    assert found["runs"]["trained"]["workdir"] == str(trained)
    for point in checkpoints:  # at the run's temperature
        assert point["alignment_term"] == pytest.approx((point["alignment"] / 2 - 1) / 0.05, abs=1e-4)
        assert point["uniformity_with_self"] >= point["uniformity_bound"]


@pytest.fixture
def senteval_of_two(tmp_path, corpus):
    """A SentEval folder with two of the seven tasks, both of the same pairs, STS-B in all splits."""
    rows = [line.split("\t") for line in corpus["dev"].read_text().splitlines()[1:]]
    for folder in ("STS/STSBenchmark", "SICK"):
        (tmp_path / "senteval" / folder).mkdir(parents=True)
    lines = [f"x\tx\tx\t{number}\t{score}\t{first}\t{second}\n" for number, (first, second, score) in enumerate(rows)]
    for split in ("train", "dev", "test"):
        (tmp_path / f"senteval/STS/STSBenchmark/sts-{split}.csv").write_text("".join(lines))
    lines = [f"{number}\t{first}\t{second}\t{score}\tx\n" for number, (first, second, score) in enumerate(rows[::2])]
    (tmp_path / "senteval/SICK/SICK_test_annotated.txt").write_text("".join(["pair_ID\tA\tB\tscore\tx\n", *lines]))
    return tmp_path / "senteval"


@pytest.mark.slow
def test_panels_of_models_with_labels_and_post_processing(tmp_path, tiny_bert, senteval_of_two):
    output, one = tmp_path / "out", f"{tiny_bert}@1@avg@whitening"
    given = ("--models", f"{tiny_bert}@avg=BERT (avg)", one, "--models", tiny_bert, "--panels", "Before", "After")
    given = (*given, "--data", senteval_of_two, "--output", output, "--batch-size", 8)
    done = call("geometry", *given, "--postprocess-data", "target", "--postprocess-dimensions", 4)
    assert (done.returncode, done.stderr) == (0, "")
    models = json.loads((output / "geometry.json").read_text())["models"]
    assert list(models) == ["BERT (avg)", "tiny-bert, 1 layer, avg, whitening", "tiny-bert"]
    tasks = sts.read(str(senteval_of_two), TASKS)[0]
    for (label, facts), pooler, layers in zip(models.items(), ("avg", "avg", "cls"), (0, 1, 0), strict=True):
        encode = SimCSE(str(tiny_bert), pooler=pooler, num_layers=layers).encode
        expected = {}
        for task, pairs in tasks.items():
            sides = np.split(encode(pairs.first + pairs.second), 2)
            if facts["postprocess"]:
                mean, kernel = whitening(np.concatenate(sides), 4)
                sides = [(side - mean) @ kernel for side in sides]
            expected[task] = sts.spearman(sts.cosine(*sides), pairs.gold)
        assert facts["sts"] == pytest.approx(expected, abs=1e-3)
        assert facts["score"] == pytest.approx(np.mean(list(expected.values())), abs=1e-3)
        assert facts["spearman"] == pytest.approx(expected["STSBenchmark"], abs=1e-3)
        assert len(facts["singular_values"]) == (4 if facts["postprocess"] else 32)
        assert f"{label}: alignment" in done.stdout
    picture = texts((output / "models.svg").read_bytes())
    assert any("average STS, Spearman × 100 (2 of 7 tasks, without STS12, STS13" in text for text in picture)
    assert {"Before", "After"} <= set(texts((output / "cosines.svg").read_bytes()))


@pytest.fixture
def recorded(trained, tmp_path):
    """Two seeds of a row and one of another, without checkpoints, with records of where they were."""
    folders = []
    for number, (row, seed) in enumerate((("no dropout", 1), ("no dropout", 2), ("fixed", 1))):
        ignored = shutil.ignore_patterns("checkpoints", "tensorboard")
        folder = shutil.copytree(trained, tmp_path / row / f"seed{seed}", ignore=ignored)
        about = json.loads((folder / "run.json").read_text())
        about["config"] |= {"seed": seed}
        about["config"]["model"]["dropout"] = 0.0 if row == "no dropout" else 0.2
        (folder / "run.json").write_text(json.dumps(about))
        with open(folder / "metrics.jsonl", "a") as file:
            for step in (0, 4, 8):
                place = {"alignment": 0.1 * step + number, "uniformity": -1.0 * step}
                place |= {"top_eigenvalue": 9.0 - step, "effective_rank": 1.0 + number, "uniformity_term": 19.0 - step}
                line = {"step": step, "analysis": place, "singular_values": [1.0, 0.1 * (1 + number)]}
                file.write(json.dumps(line) + "\n")
        folders.append(folder)
    return folders


@pytest.mark.slow
def test_runs_without_checkpoints_are_drawn_from_their_records(tmp_path, recorded):
    done = call("geometry", "--runs", *recorded[:2], f"{recorded[2]}=fixed 0.1", "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert_files(tmp_path / "out", "convergence", "runs", "spectrum", "terms")
    found = json.loads((tmp_path / "out" / "geometry.json").read_text())
    assert list(found["runs"]) == ["no dropout", "fixed 0.1"]
    assert found["runs"]["no dropout"]["points"][1] == {"step": 4, "alignment": 0.9, "uniformity": -4.0}
    expected = {"step": 4, "top_eigenvalue": 5.0, "effective_rank": 1.5, "uniformity_term": 15.0}
    assert found["runs"]["no dropout"]["spectrum"][1] == expected
    scored = [line for line in map(json.loads, (recorded[0] / "metrics.jsonl").read_text().splitlines())]
    scored = {line["step"]: line["eval/dev"] for line in scored if "eval/dev" in line}
    assert found["runs"]["fixed 0.1"]["scores"]["mean"] == pytest.approx(list(scored.values()), abs=1e-4)
    best = max(step for step in scored if step and scored[step] == max(scored[step] for step in scored if step))
    assert found["runs"]["no dropout"]["scores"]["best_steps"] == [best, best]
    assert f"at steps {best}, {best}" in done.stdout and "at 3 steps" in done.stdout
    done = call("geometry", "--runs", f"{recorded[0]}=x", f"{recorded[2]}=x", "--output", tmp_path / "other")
    found = json.loads((tmp_path / "other" / "geometry.json").read_text())
    assert len(found["runs"]) == 2, done.stderr  # one label for runs that differ in more than their seed


MISTAKES = [
    ({}, "nothing to measure"),
    ({"models": "m"}, "data: is missing"),
    ({"models": "m", "panels": ["a", "b"], "data": "d"}, "panels: must have a title for each models, 1"),
    ({"models": "m@whitening", "data": "d"}, "postprocess_data: must be set for"),
]


def test_models_have_methods_and_panels_runs_their_labels_and_after_a_mistake_nothing_is_written(
    tmp_path, tiny_bert, trained, corpus
):
    for options, message in MISTAKES:
        with pytest.raises(UserError) as error:
            simcse_jax.geometry(output="out", **options)
        assert message in str(error.value), options
    models = geometry.read_models(["a", "b@flow=x", "c@3@avg@whitening"], "whitening", "target")
    assert [model.postprocess for model in models.values()] == ["whitening", "flow", "whitening"]
    assert [model.label for model in models.values()] == ["", "x", ""]
    _, bound = verbs.parse("geometry", ["--models", "a", "b=x", "--data=x", "--output=out"])
    assert geometry.specs_of_panels(bound.arguments["models"], ()) == {"": ["a", "b=x"]}
    _, bound = verbs.parse("geometry", ["--models", "a", "--models", "b=x", "--data=x", "--output=out"])
    assert geometry.specs_of_panels(bound.arguments["models"], ()) == {"panel 1": ["a"], "panel 2": ["b=x"]}
    assert geometry.specs_of_panels(["a", "b=x"], ["title"]) == {"title": ["a", "b=x"]}
    assert geometry.specs_of_panels(["a", ["b", "c"]], ["one", "two"]) == {"one": ["a"], "two": ["b", "c"]}
    data = ("--data", corpus["dev"], "--output", tmp_path / "out")
    refused(call("geometry", "--models", "no/such", *data, "--score", "sts_avg"), "--score sts_avg", "a file of pairs")
    (tmp_path / "few.txt").write_text("a cat\na dog\n")
    few = ("--postprocess-data", tmp_path / "few.txt")
    refused(call("geometry", "--models", f"{tiny_bert}@flow", *data, *few), "flow of 32 dimensions", "33 or more")
    refused(call("geometry", "--models", f"{tiny_bert}@whitening@flow", *data, *few), "tiny-bert@whitening")
    for kept, what in ((1, "kept 1 checkpoint"), (0, "kept 0 checkpoints")):
        workdir = shutil.copytree(trained, tmp_path / f"run{kept}")
        for path in sorted((workdir / "checkpoints").iterdir())[kept:]:
            shutil.rmtree(path)
        refused(call("geometry", "--runs", workdir, *data), what, "checkpoint.keep_every")
    assert not (tmp_path / "out").exists()


@pytest.mark.optimized
@pytest.mark.slow
def test_minilm_has_its_geometry_on_sts_b(minilm, senteval):
    pairs = measures.read(str(senteval))
    embeddings = {}

    def encode(some):
        embeddings.update(zip(some, SimCSE(minilm).encode(some), strict=True))
        return np.stack([embeddings[sentence] for sentence in some])

    found = measures.measure(encode, pairs)
    assert found.spearman == pytest.approx(82.03, abs=0.03)
    rows = np.stack([embeddings[sentence] for sentence in pairs.first + pairs.second]).astype(np.float64)
    apart = scipy.spatial.distance.pdist(rows / np.linalg.norm(rows, axis=1, keepdims=True), "sqeuclidean")
    assert found.uniformity == pytest.approx(np.log(np.mean(np.exp(-2 * apart))), abs=1e-9)
    assert (found.alignment, found.uniformity) == pytest.approx((0.2512, -3.8047), abs=1e-3)
