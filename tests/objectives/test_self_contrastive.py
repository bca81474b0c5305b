"""SCD's two terms, the second being `barlow_twins` as released."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, cosine, random
from support.equations import assert_is_equation

from simcse_jax.objectives.barlow_twins import barlow_twins
from simcse_jax.objectives.self_contrastive import self_contrastive


def test_value_and_gradient_are_the_similarity_of_the_views_over_the_temperature():
    """Plus: views repel each other."""
    weights = np.float32([1, -2, 3, 2, 1, 1])
    assert_is_equation(
        lambda first, second: jnp.sum(weights * self_contrastive(first, second, temperature=0.05)),
        lambda *views: weights @ [cosine(a, b) / 0.05 for a, b in zip(*views, strict=True)],
        *random(2, 6, 4),
    )


def scd(views, projected, psum=lambda x: x, count=6):
    repulsion = psum(jnp.sum(self_contrastive(*views, temperature=0.05))) / count
    none = jnp.zeros((0, projected.shape[-1]))
    return repulsion + 0.005225 * barlow_twins(*projected, none, psum, off_diagonal_weight=0.012, reading="released")


def test_both_terms_are_the_released_loss():
    """With PyTorch's batch norm."""

    def released(views, projected):
        one, two = ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) for x in projected)
        c = one.T @ two / 6
        decorrelation = np.sum((np.diag(c) - 1) ** 2) + 0.012 * np.sum(c[~np.eye(4, dtype=bool)] ** 2)
        return np.mean([cosine(a, b) for a, b in zip(*views, strict=True)]) / 0.05 + 0.005225 * decorrelation

    assert_is_equation(scd, released, random(2, 6, 3), random(2, 6, 4, seed=5))


@pytest.mark.exact
def test_the_loss_is_the_same_on_several_devices():
    def loss(rows, shared, own, gather, psum):
        views, projected = (jnp.moveaxis(array, 1, 0) for array in rows)
        return scd(views, projected, psum, 8)

    assert_sharded_is_whole(loss, (random(8, 2, 4), random(8, 2, 5, seed=5)))
