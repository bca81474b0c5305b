import random

import numpy as np
import pytest
from support import assert_arrays, call, lines, succeeded, train_args

from simcse_jax.devices.preemption import Preemption
from simcse_jax.runs.loading import load_model

pytestmark = pytest.mark.exact


@pytest.fixture
def run(tiny_bert, tmp_path, monkeypatch):
    """Trains on sentences of two to ten words, twelve steps, two programs."""
    monkeypatch.setattr("simcse_jax.data.batches.MANY_STEPS", 2)
    generator = random.Random(0)
    lengths = [generator.choice((2, 3, 4, 10)) for _ in range(60)]
    text = "".join(" ".join(generator.choices(("cat", "dog", "a", "the"), k=n)) + "\n" for n in lengths)
    (tmp_path / "train.txt").write_text(text)

    def train(name, *more):
        fields = ["--config.train.max_steps=12", "--config.eval.every=3", "--config.model.num_layers=1", *more]
        done = succeeded(call("train", *train_args(tiny_bert, tmp_path / "train.txt", "", tmp_path / name, *fields)))
        return done.stdout, tmp_path / name

    return train


@pytest.mark.optimized
@pytest.mark.slow
def test_both_programs_are_used_and_train_like_one_with_padding(run):
    printed, ours = run("unpadded")
    assert "compiled the step for most batches" in printed and "compiled the step for the longest batches" in printed
    printed, padded = run("padded", "--config.train.unpad=False")
    assert "compiled the step in" in printed
    losses = [[line["loss"] for line in lines(folder) if "loss" in line] for folder in (ours, padded)]
    assert len(losses[0]) > 5
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    expected = load_model(str(padded)).params
    assert_arrays(load_model(str(ours)).params, expected, atol=2e-4)  # of twelve steps of 1e-3


@pytest.mark.slow
def test_a_run_that_is_stopped_and_resumed_takes_the_same_programs_and_ends_with_the_same_bits(run, monkeypatch):
    monkeypatch.setattr("simcse_jax.training.programs.peak", lambda device: 1e15)
    monkeypatch.delattr("jax.lax.platform_dependent")  # its platform is known, so nothing is traced for others
    _, whole = run("whole")
    logged = [line for line in lines(whole) if "loss" in line]
    assert all(0 < line["share_of_peak"] < 1 for line in logged)  # of a device whose peak is known
    for stop in (4, 8):
        monkeypatch.setattr(Preemption, "reached", lambda self, number, stop=stop: number == stop)
        with pytest.raises(AssertionError, match=f"saved at step {stop}"):
            run("parts")
    monkeypatch.setattr(Preemption, "reached", lambda self, number: False)
    _, parts = run("parts")
    assert_arrays(load_model(str(parts)).params, load_model(str(whole)).params)
