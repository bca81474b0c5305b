import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import assert_arrays, random_model
from support.steps import batch, recipe, settings

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.devices.mesh import split_over_examples as by_example
from simcse_jax.devices.parts import distribute
from simcse_jax.models.parameters import WORD_EMBEDDING
from simcse_jax.training.optimizer import Optimization
from simcse_jax.training.step import init_state, make_step

pytestmark = pytest.mark.exact


DATA = [batch(3, seed) for seed in range(4)]
OTHERS = [(2, 3), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 3), (2, 0), (4, 1), (8, 0)))]


@functools.cache
def program(devices=1, chunk_size=0, mu_dtype="float32"):
    graph, params, _ = random_model(num_layers=1)
    mesh, chosen = data_mesh(jax.devices()[:devices]), Optimization(mu_dtype=mu_dtype)

    def start(numbers):
        return distribute(init_state(jax.tree.map(jnp.array, params), numbers, chosen), mesh)

    return start, make_step(graph, recipe(3, chunk_size=chunk_size, optimization=chosen), mesh), by_example(mesh)


@functools.cache
def trained(devices=1, chunk_size=0, mu_dtype="float32", steps=20, **numbers):
    start, update, place = program(devices, chunk_size, mu_dtype)
    numbers = settings(**numbers)
    state, losses = start(numbers), []
    for step in range(steps):
        state, metrics = update(state, jax.device_put(DATA[step % 4], place), numbers)
        losses.append(float(metrics["loss"]))
    return losses, {name: np.asarray(value) for name, value in state.params.items()}


@pytest.mark.optimized
@pytest.mark.parametrize(("devices", "chunk_size"), OTHERS)
def test_losses_and_parameters_of_twenty_steps_are_the_same_on_any_number_of_devices_and_in_chunks(devices, chunk_size):
    (losses, params), (other_losses, other) = trained(), trained(devices, chunk_size)
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    np.testing.assert_allclose(other_losses, losses, rtol=1e-4)
    assert_arrays(other, params, atol=1e-5)


def test_the_parameters_are_the_moving_average_of_those_that_train():
    start, update, place = program()
    numbers = settings(learning_rate=1e-3, ema_decay=0.7)
    state = start(numbers)
    expected = {name: np.float64(value) for name, value in state.params.items()}
    assert_arrays(state.optimizer.trained, expected)
    for step in range(3):
        state, _ = update(state, jax.device_put(DATA[step], place), numbers)
        last = {name: np.float64(value) for name, value in state.optimizer.trained.items()}
        expected = {name: 0.7 * value + 0.3 * last[name] for name, value in expected.items()}
    assert_arrays(state.params, expected, atol=1e-6)
    assert max(np.abs(expected[name] - last[name]).max() for name in expected) > 1e-3


@pytest.mark.slow
def test_an_average_changes_no_loss_and_is_the_same_on_any_number_of_devices_and_in_chunks():
    numbers = {"learning_rate": 1e-3, "steps": 4}
    losses, found = trained(**numbers, ema_decay=0.7)
    assert losses == trained(**numbers)[0]
    assert_arrays(trained(2, 2, **numbers, ema_decay=0.7)[1], found, atol=1e-5)


@pytest.mark.slow
def test_with_a_mean_in_bfloat16_a_step_learns_the_same_on_any_number_of_devices():
    numbers = {"steps": 60, "learning_rate": 1e-3, "total_steps": 60}
    exact, expected = trained(**numbers)
    losses, params = trained(mu_dtype="bfloat16", **numbers)
    assert losses[0] == exact[0] and np.mean(exact[-4:]) < 0.5 * np.mean(exact[:4])
    np.testing.assert_allclose(losses, exact, rtol=0.05, atol=0.02)  # the curve
    assert 0 < max(np.abs(params[name] - expected[name]).max() for name in params) < 1e-2
    other_losses, other = trained(4, mu_dtype="bfloat16", **numbers)
    np.testing.assert_allclose(other_losses, losses, rtol=1e-3, atol=1e-4)
    assert_arrays(other, params, atol=2e-4)


@pytest.mark.slow
def test_by_default_nothing_of_an_update_is_in_bfloat16():
    for mu_dtype in ("float32", "bfloat16"):
        start, update, _ = program(mu_dtype=mu_dtype)
        text = update.lower(start(settings()), DATA[0], settings()).as_text()
        assert ("bf16" in text) == (mu_dtype == "bfloat16")


def test_updates_fall_linearly_learn_and_compile_once():
    start, update, place = program(2, 3)
    chosen, data = settings(learning_rate=1e-3, dropout=0.0), jax.device_put(DATA[0], place)
    state, metrics = start(chosen), []
    for _ in range(20):
        state, values = update(state, data, chosen)
        metrics.append({name: float(value) for name, value in values.items()})
    rates = [line["learning_rate"] for line in metrics]
    np.testing.assert_allclose(rates, 1e-3 * (1 - np.arange(20) / 20), rtol=1e-5)
    assert metrics[-1]["loss"] < 0.5 * metrics[0]["loss"] and int(state.step) == 20
    # Another temperature, dropout rate, learning rate, seed: the same program.
    update(state, data, settings(learning_rate=3e-5, dropout=0.2) | {"seed": jnp.uint32(9)})
    assert update._cache_size() == 1


@pytest.mark.slow
@pytest.mark.parametrize("words", [40, 41])
def test_a_step_is_the_same_on_two_devices_and_on_four(words, monkeypatch):
    """On four, rows of word embeddings are exchanged, too: 40 words are split by rows, 41 by columns."""
    graph, params, _ = random_model(num_layers=1)
    params |= {WORD_EMBEDDING: np.resize(params[WORD_EMBEDDING], (words, 32))}

    def step(devices):
        mesh = data_mesh(jax.devices()[:devices])
        state = distribute(init_state(jax.tree.map(jnp.array, params), settings()), mesh)
        state, values = make_step(graph, recipe(1), mesh)(state, batch(1), settings())
        return np.asarray(values["loss"]), {name: np.asarray(value) for name, value in state.params.items()}

    losses, trained = step(1)
    for devices in (2, 4):
        if devices == 4:
            monkeypatch.setattr("simcse_jax.training.gathering.is_exchange_cheaper", lambda *args: True)
        other_losses, other = step(devices)
        np.testing.assert_allclose(other_losses, losses, rtol=1e-6)
        assert_arrays(other, trained, atol=2e-6)
