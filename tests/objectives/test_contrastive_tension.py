import jax.numpy as jnp
import numpy as np
from support.checks import random
from support.equations import assert_is_equation

from simcse_jax.objectives.contrastive_tension import contrastive_tension

IS_POSITIVE = np.arange(16) % 8 == 0


def test_value_and_gradient_are_the_equation_s():
    """A sixteenth of the loss of sentence-transformers, whose batches have 16 pairs and are summed."""

    def equation(rows):
        found = 1 / (1 + np.exp(-np.sum(rows[0] * rows[1], axis=1)))
        return -np.sum(np.log(np.where(IS_POSITIVE, found, 1 - found))) / 16

    assert_is_equation(lambda rows: jnp.mean(contrastive_tension(*rows, IS_POSITIVE)), equation, 0.7 * random(2, 16, 3))


def test_large_products_are_finite():
    losses = contrastive_tension(jnp.full((2, 1), 100.0), jnp.full((2, 1), 100.0), np.array([True, False]))
    np.testing.assert_allclose(losses, [0.0, 10_000.0])
