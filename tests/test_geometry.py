import json
import math
import shutil

import numpy as np
import pytest
import scipy.spatial
from support import call

from simcse_jax.evaluation import geometry as measures
from simcse_jax.runs.kept import steps_of
from simcse_jax.simcse import SimCSE


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def scored(encode, corpus) -> tuple[float, float]:
    """Alignment and uniformity of the graded pairs, worked out without the module."""
    pairs = measures.read(str(corpus["dev"]))
    first, second = (np.asarray(encode(side), np.float64) for side in (pairs.first, pairs.second))
    first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second))
    distances = [sum((a - b) ** 2) for a, b, gold in zip(first, second, pairs.gold, strict=True) if gold > 4]
    everything = np.concatenate([first, second])
    apart = [sum((a - b) ** 2) for number, a in enumerate(everything) for b in everything[number + 1 :]]
    return float(np.mean(distances)), math.log(np.mean(np.exp(-2 * np.array(apart))))


def test_models_and_runs_are_measured_and_drawn(tmp_path, tiny_bert, trained, corpus):
    output = tmp_path / "new" / "folder"
    models = [f"{tiny_bert}", f"{tiny_bert}@1@avg"]
    done = call(
        "geometry",
        "--models",
        *models,
        "--runs",
        trained,
        "--data",
        corpus["dev"],
        "--output",
        output,
        "--batch-size",
        8,
    )
    assert (done.returncode, done.stderr) == (0, "")
    pictures = [
        f"{name}.{kind}" for name in ("cosines", "models", "runs", "singular_values") for kind in ("png", "svg")
    ]
    assert files(output) == sorted(["geometry.json", *pictures])

    found = json.loads((output / "geometry.json").read_text())
    assert (found["data"], found["pairs"], found["positives"]) == ("dev.tsv", 20, 4)
    assert list(found["models"]) == ["tiny-bert", "tiny-bert, 1 layer, avg"]
    for label, encoder in (
        ("tiny-bert", SimCSE(str(tiny_bert))),
        ("tiny-bert, 1 layer, avg", SimCSE(str(tiny_bert), pooler="avg", num_layers=1)),
    ):
        model = found["models"][label]
        assert (model["alignment"], model["uniformity"]) == pytest.approx(scored(encoder.encode, corpus), abs=1e-5)
        assert (model["pooler"], len(model["singular_values"])) == (encoder.pooler, 32)
        assert [group["pairs"] for group in model["groups"].values()] == [4, 4, 4, 4, 4]
        assert {len(group["density"]) for group in model["groups"].values()} == {len(found["density_at"])}
        assert f"{label}: alignment {model['alignment']:.4f}" in done.stdout

    checkpoints = found["runs"]["trained"]["checkpoints"]
    assert [point["step"] for point in checkpoints] == [0, *steps_of(trained)]
    assert len({point["alignment"] for point in checkpoints}) == len(checkpoints) > 2
    assert found["runs"]["trained"]["workdir"] == str(trained)


@pytest.fixture(scope="module")
def low(tmp_path_factory):
    """Graded pairs without one above 4."""
    path = tmp_path_factory.mktemp("low") / "low.tsv"
    path.write_text("sentence1\tsentence2\tscore\nthe cat\ta dog\t4\nhe ran\tshe sings\t1\n")
    return path


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"--models": None}, ["nothing to measure", "--models", "--runs"]),
        ({"--models": ["no/such/model"]}, ["no/such/model: no such folder"]),
        ({"--models": ["{model}", "{model}@bad"]}, ["tiny-bert@bad: no such folder"]),
        ({"--models": ["{model}@9"]}, ["the model has 2 layers"]),
        ({"--models": ["{model}", "{model}"]}, ["--models", "is given twice"]),
        ({"--runs": ["{model}"]}, ["--runs", "tiny-bert", "not a run's folder"]),
        ({"--runs": ["no/such/run"]}, ["--runs no/such/run", "not a run's folder"]),
        ({"--data": "no/such/data"}, ["no/such/data: no such folder or file"]),
        ({"--data": "tests"}, ["tests: no STSBenchmark"]),
        ({"--data": "{low}"}, ["low.tsv: no pair is rated above 4"]),
        ({"--split": "train"}, ["--split", "'train'"]),
        ({"--output": __file__}, ["--output", "test_geometry.py: is a file", "must be a folder"]),
        ({"--output": __file__ + "/folder"}, ["--output", "cannot be written: Not a directory"]),
        ({"--batch-size": "0"}, ["--batch-size 0", "1 or more"]),
        ({"--models": None, "--runs": ["{low}"], "--prompt": "a"}, ["--prompt: is for --models"]),
        ({"--prompt-name": "x"}, ["prompt_name='x'", "query, document"]),
        ({"--truncate-dim": "99"}, ["truncate_dim 99"]),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_a_mistake_is_refused_in_one_line_and_nothing_is_written(tmp_path, tiny_bert, corpus, low, changes, parts):
    args = {"--models": ["{model}"], "--data": str(corpus["dev"]), "--output": str(tmp_path / "out")} | changes
    given = []
    for option, values in args.items():
        values = [values] if isinstance(values, str) else values
        given += [] if values is None else [option, *(value.format(model=tiny_bert, low=low) for value in values)]
    done = call("geometry", *given)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")
    assert [part for part in parts if part not in done.stderr] == [], done.stderr
    assert not (tmp_path / "out" / "geometry.json").exists()


@pytest.mark.parametrize(("kept", "what"), [(0, "no checkpoints were kept"), (1, "one checkpoint was kept")])
def test_a_run_without_checkpoints_is_refused(tmp_path, trained, corpus, kept, what):
    workdir = shutil.copytree(trained, tmp_path / "run")
    for path in sorted((workdir / "checkpoints").iterdir())[kept:]:
        shutil.rmtree(path)
    done = call("geometry", "--runs", workdir, "--data", corpus["dev"], "--output", tmp_path / "out")
    assert done.returncode == 2
    assert f"{what}; train it with --config.checkpoint.keep_every" in done.stderr
    assert not (tmp_path / "out").exists()


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
