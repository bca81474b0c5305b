import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.steps import settings

from simcse_jax.training.optimizer import learning_rate, optimizer


@pytest.mark.parametrize("limit", [0.0, 0.5, 10.0])
def test_clipping(limit):
    chosen = settings(max_grad_norm=limit)
    factor = limit / 5 if 0 < limit < 5 else 1
    gradients = {"a": jnp.array([3.0, 4.0])}
    adam = optimizer(jnp.int32(0), chosen)
    _, state = adam.update(gradients, adam.init(gradients), gradients)
    first_moment = next(
        part for part in jax.tree.leaves(state, is_leaf=lambda x: hasattr(x, "mu")) if hasattr(part, "mu")
    )
    np.testing.assert_allclose(first_moment.mu["a"], 0.1 * np.array([3.0, 4.0]) * factor, rtol=1e-6)


def test_weight_decay_spares_biases_and_norms():
    _, params, _ = random_model()
    chosen = settings(weight_decay=0.1, learning_rate=0.5)
    adam = optimizer(jnp.int32(0), chosen)
    zero = jax.tree.map(jnp.zeros_like, params)
    updates, _ = adam.update(zero, adam.init(params), params)
    for name, value in updates.items():
        decayed = name.endswith(("kernel", "embedding"))
        np.testing.assert_allclose(value, -0.05 * params[name] if decayed else 0, rtol=1e-5, err_msg=name)


def test_the_rate_falls_linearly_to_zero():
    rates = [float(learning_rate(jnp.int32(step), settings(learning_rate=1.0, total_steps=4))) for step in range(5)]
    assert rates == [1.0, 0.75, 0.5, 0.25, 0.0]
