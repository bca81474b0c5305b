"""A run and an index of an earlier version (`tests/earlier`, made by that version's own commands) are still ours.

It is a SimCSE++ run of 60 steps with a language-model head, stopped by SIGTERM after step 31. `arrays.npz` has what
that version restored from it, and the gradient of its next step; `straight.json` has the scores of a run not stopped.
"""

import json
import shutil

import jax
import numpy as np
import pytest
from support import ROOT, call, lines

from simcse_jax.config.flags import parse
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.simcse import SimCSE
from simcse_jax.training.inputs import read_inputs
from simcse_jax.training.loss import make_loss
from simcse_jax.training.setup import make_setup

pytestmark = pytest.mark.exact

EARLIER = ROOT / "tests" / "earlier"
FIELDS = {
    "model.init_from": "tests/earlier/model", "data.train": "tests/earlier/train.csv", "data.max_length": 16,
    "train.batch_size": 8, "train.max_steps": 60, "train.log_every": 5, "train.learning_rate": 3e-4, "seed": 7,
    "eval.data": "tests/earlier/dev.tsv", "eval.every": 10, "parallel.devices": 1, "objective.mlm.weight": 0.1,
    "objective.off_dropout.reading": "paper",  # the recipe's own readings then; CHANGELOG names them for users, too
    "objective.dimension_wise.reading": "released",
}  # fmt: skip
STOPPED = 31


def arguments(workdir) -> list[str]:
    fields = (f"--config.{name}={value}" for name, value in FIELDS.items())
    return ["--config=configs/simcse_plus_plus.py", f"--workdir={workdir}", *fields]


def named(arrays: dict[str, np.ndarray], group: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(f"{group}/"): arrays[name] for name in arrays if name.startswith(f"{group}/")}


@pytest.mark.slow
# That version had the whole state on every device.
@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.optimized)])
def test_its_state_is_restored_bit_for_bit_and_its_next_gradient_is_the_same(devices, monkeypatch):
    monkeypatch.chdir(ROOT)
    arrays = dict(np.load(EARLIER / "arrays.npz"))
    config, _ = parse([*arguments("unused"), f"--config.parallel.devices={devices}"])
    setup = make_setup([config], read_inputs(config))
    checkpoints = Checkpoints(EARLIER / "run", read_only=True)
    state = checkpoints.restore(STOPPED, setup.state())
    params, expected = state.params, named(arrays, "params")
    assert params.keys() == expected.keys() and int(state.step) == STOPPED == checkpoints.latest
    assert all(np.array_equal(params[name], expected[name]) for name in params)
    moments = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state.optimizer)}
    expected = named(arrays, "optimizer")
    assert moments.keys() == expected.keys() and all(np.array_equal(moments[name], expected[name]) for name in moments)
    (batches,) = setup.batches()
    programs = batches.sizes(60, devices)
    recipe = setup.recipe._replace(most_tokens=programs.tokens[programs.of(STOPPED)])
    compute = jax.jit(make_loss(setup.graph, recipe, setup.mesh))
    (loss, _), gradient = compute(params, state.step, batches[STOPPED], setup.settings())
    assert float(loss) == pytest.approx(float(arrays["loss"]), rel=1e-6)
    expected = named(arrays, "gradient")
    size = np.sqrt(sum(np.sum(np.square(value, dtype=np.float64)) for value in expected.values()))
    for name, value in expected.items():
        assert np.abs(np.asarray(gradient[name]) - value).max() <= 1e-6 * size, name


def test_its_index_is_read_and_finds_the_same(monkeypatch):
    monkeypatch.chdir(ROOT)
    model = SimCSE("tests/earlier/model")
    model.load_index(EARLIER / "index")
    found = json.loads((EARLIER / "found.json").read_text())
    (query,) = found["queries"]
    again = model.search(query["query"], threshold=-1)
    (expected,) = query["results"]
    assert [result.row for result in again] == [result["row"] for result in expected]
    assert [result.score for result in again] == pytest.approx([result["score"] for result in expected], abs=1e-5)


@pytest.mark.slow
def test_it_resumes_to_the_same_end_and_is_exported(tmp_path):
    workdir = shutil.copytree(EARLIER / "run", tmp_path / "run")
    done = call("train", *arguments(workdir))
    assert done.returncode == 0 and f"resuming at step {STOPPED} of 60" in done.stdout, done.stderr
    straight = json.loads((EARLIER / "straight.json").read_text())
    expected = {line["step"]: line["eval/dev"] for line in straight["metrics"] if "eval/dev" in line}
    scores = {line["step"]: line["eval/dev"] for line in lines(workdir) if "eval/dev" in line}
    assert scores == pytest.approx(expected, abs=0.02) and list(scores) == [0, 10, 20, 30, 40, 50, 60]
    result = json.loads((workdir / "result.json").read_text())
    assert result["dev"]["spearman"] == pytest.approx(straight["final"]["dev"]["spearman"], abs=0.02)
    run = SimCSE(EARLIER / "run")  # unchanged, with a best checkpoint
    run.save_pretrained(tmp_path / "exported")
    texts = ["a cat", "the dog ran"]
    np.testing.assert_allclose(SimCSE(tmp_path / "exported").encode(texts), run.encode(texts), atol=1e-5)
