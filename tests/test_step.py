import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_batch, random_model

from simcse_jax import step as step_lib
from simcse_jax.models import parameters
from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.views import dropout_keys

BATCH = 8


def settings(**changes):
    terms = {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}
    scalars = {"learning_rate": 5e-5, "weight_decay": 0.0, "max_grad_norm": 1.0, "total_steps": 20, "dropout": 0.1}
    scalars |= {"objective": {"info_nce": terms}} | changes
    return jax.tree.map(jnp.float32, scalars) | {"seed": jnp.uint32(3)}


def recipe(columns, pooler="cls", use_head=True):
    return step_lib.Recipe(pooler, use_head, (0, 0) if columns == 1 else tuple(range(columns)), ("info_nce",))


def batch(columns, seed=0):
    ids, mask = random_batch(BATCH, 16, columns, seed)
    return {"input_ids": ids, "attention_mask": mask, "index": np.arange(BATCH, dtype=np.int32)}


def gradient(devices, columns):
    graph, params, _ = random_model()
    mesh = step_lib.data_mesh(jax.devices()[:devices])
    function = jax.jit(step_lib.make_loss(graph, recipe(columns), mesh))
    loss, values = function(params, jnp.int32(0), batch(columns), settings())
    return float(loss), {name: np.asarray(value) for name, value in values.items()}


@pytest.mark.parametrize("columns", [1, 3])
def test_the_gradient_before_clipping_is_the_same_on_any_number_of_devices(columns):
    loss, expected = gradient(1, columns)
    for devices in (2, 4, 8):
        other_loss, other = gradient(devices, columns)
        assert other_loss == pytest.approx(loss, rel=1e-5)
        for name, value in expected.items():
            scale = np.abs(value).max()
            assert np.abs(other[name] - value).max() <= 1e-5 * max(scale, 1e-3), (devices, name)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_loss_and_gradient_are_the_objective_s_of_the_views(columns):
    """Written down without devices: so the gradient through the gathered columns is there, once."""
    graph, params, _ = random_model()
    data, views = batch(columns), recipe(columns).views
    keys = dropout_keys(3, 0, jnp.arange(BATCH), len(views))

    def direct(params):
        model = parameters.merge(graph, params)
        embeddings = [
            model(
                data["input_ids"][:, column],
                data["attention_mask"][:, column],
                pooler="cls",
                use_head=True,
                dropout_keys=keys[view],
            )
            for view, column in enumerate(views)
        ]
        negatives = embeddings[2] if columns == 3 else None
        return jnp.mean(info_nce(*embeddings[:2], negatives, jnp.arange(BATCH), temperature=0.05))

    expected, expected_gradient = jax.jit(jax.value_and_grad(direct))(params)
    loss, values = gradient(2, columns)
    assert loss == pytest.approx(float(expected), rel=1e-5)
    for name, value in expected_gradient.items():
        assert np.abs(values[name] - value).max() <= 1e-5 * max(np.abs(value).max(), 1e-3), name


def test_updates_fall_linearly_learn_and_compile_once():
    graph, params, _ = random_model()
    mesh = step_lib.data_mesh(jax.devices()[:2])
    update = step_lib.make_step(graph, recipe(3), mesh)
    chosen = settings(learning_rate=1e-3, dropout=0.0)
    state = step_lib.init_state(jax.tree.map(jnp.array, params), chosen)
    state = jax.device_put(state, step_lib.replicated(mesh))
    data = jax.device_put(batch(3), step_lib.split_over_examples(mesh))
    metrics = []
    for _ in range(20):
        state, values = update(state, data, chosen)
        metrics.append({name: float(value) for name, value in values.items()})
    rates = [line["learning_rate"] for line in metrics]
    np.testing.assert_allclose(rates, 1e-3 * (1 - np.arange(20) / 20), rtol=1e-5)
    assert metrics[-1]["loss"] < 0.5 * metrics[0]["loss"]
    assert int(state.step) == 20
    # Another temperature, dropout rate, learning rate, seed: the same program.
    other = settings(learning_rate=3e-5, dropout=0.2) | {"seed": jnp.uint32(9)}
    update(state, data, other)
    assert update._cache_size() == 1


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_clipping(limit):
    chosen = settings(max_grad_norm=limit)
    gradients = {"a": jnp.array([3.0, 4.0])}
    optimizer = step_lib.optimizer(jnp.int32(0), chosen)
    _, state = optimizer.update(gradients, optimizer.init(gradients), gradients)
    first_moment = next(
        part for part in jax.tree.leaves(state, is_leaf=lambda x: hasattr(x, "mu")) if hasattr(part, "mu")
    )
    np.testing.assert_allclose(first_moment.mu["a"], 0.1 * np.array([3.0, 4.0]) * (limit / 5 or 1), rtol=1e-6)


def test_weight_decay_spares_biases_and_norms():
    _, params, _ = random_model()
    chosen = settings(weight_decay=0.1, learning_rate=0.5)
    optimizer = step_lib.optimizer(jnp.int32(0), chosen)
    zero = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zero, optimizer.init(params), params)
    for name, value in updates.items():
        decayed = name.endswith(("kernel", "embedding"))
        np.testing.assert_allclose(value, -0.05 * params[name] if decayed else 0, rtol=1e-5, err_msg=name)
