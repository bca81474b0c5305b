import jax
import jax.numpy as jnp
import numpy as np
from support.checks import assert_sharded_is_whole, random
from support.equations import assert_is_equation

from simcse_jax.objectives.contrastive_tension import contrastive_tension

IS_POSITIVE = np.arange(16) % 8 == 0
mean_gradient = jax.jit(jax.grad(lambda rows, is_positive: jnp.mean(contrastive_tension(*rows, is_positive))))


def test_value_and_gradient_are_the_equation_s():
    """A sixteenth of the loss of sentence-transformers, whose batches have 16 pairs and are summed."""

    def equation(rows):
        found = 1 / (1 + np.exp(-np.sum(rows[0] * rows[1], axis=1)))
        return -np.sum(np.log(np.where(IS_POSITIVE, found, 1 - found))) / 16

    assert_is_equation(lambda rows: jnp.mean(contrastive_tension(*rows, IS_POSITIVE)), equation, 0.7 * random(2, 16, 3))


def test_equal_encoders_have_the_same_gradient_on_positives():
    rows = random(16, 5)
    first, second = mean_gradient((rows, rows), np.ones(16, bool))
    np.testing.assert_array_equal(first, second)
    first, second = mean_gradient((rows, np.roll(rows, 1, axis=0)), np.zeros(16, bool))
    assert np.abs(first - second).max() > 1e-2


def test_large_products_are_finite():
    losses = contrastive_tension(jnp.full((2, 1), 100.0), jnp.full((2, 1), 100.0), np.array([True, False]))
    np.testing.assert_allclose(losses, [0.0, 10_000.0])


def test_a_group_may_lie_on_several_devices():
    def loss(rows, shared, own, gather, psum):
        return psum(jnp.sum(contrastive_tension(*rows, own % 8 == 0))) / 16

    assert_sharded_is_whole(loss, tuple(0.7 * random(2, 16, 5)))
