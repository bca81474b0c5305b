"""SCD's two terms, the second being `barlow_twins` as released."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, cosine, random

from simcse_jax.objectives.barlow_twins import barlow_twins
from simcse_jax.objectives.self_contrastive import self_contrastive

FIRST, SECOND = random(2, 6, 4)
ALPHA, BETA, LAMBDA, TEMPERATURE = 1.0, 0.005225, 0.012, 0.05


def by_the_equation(first, second):
    return np.array([cosine(a, b) / 0.05 for a, b in zip(first, second, strict=True)])


def test_is_the_similarity_of_the_views_over_the_temperature():
    found = self_contrastive(FIRST, SECOND, temperature=0.05)
    np.testing.assert_allclose(found, by_the_equation(FIRST, SECOND), rtol=1e-5)

    def ours(first, second):
        return jnp.sum(self_contrastive(first, second, temperature=0.05))

    assert_gradient(ours, lambda *views: by_the_equation(*views).sum(), FIRST, SECOND)


def test_views_repel_each_other():
    """Plus: a step down the gradient makes the views less similar."""

    def mean(first):
        return jnp.mean(self_contrastive(first, SECOND, temperature=1.0))

    lower = FIRST - 0.1 * jax.grad(mean)(FIRST)
    assert mean(lower) < mean(FIRST)


def scd(views, projected, psum=lambda x: x, count=6):
    repulsion = psum(jnp.sum(self_contrastive(*views, temperature=TEMPERATURE))) / count
    none = jnp.zeros((0, projected.shape[-1]))
    decorrelation = barlow_twins(*projected, none, psum, off_diagonal_weight=LAMBDA, reading="released")
    return ALPHA * repulsion + BETA * decorrelation


def test_both_terms_are_the_released_loss():
    torch = pytest.importorskip("torch")
    views, projected = random(2, 6, 4), random(2, 6, 9, seed=5)
    value, gradients = jax.value_and_grad(scd, argnums=(0, 1))(views, projected)

    theirs = [torch.tensor(array, requires_grad=True) for array in (views, projected)]
    norm = torch.nn.BatchNorm1d(9, affine=False)
    c = norm(theirs[1][0]).T @ norm(theirs[1][1]) / 6
    off_diagonal = c[~torch.eye(9, dtype=bool)].pow(2).sum()
    decorrelation = (torch.diagonal(c) - 1).pow(2).sum() + LAMBDA * off_diagonal
    repulsion = (torch.nn.functional.cosine_similarity(*theirs[0], dim=-1) / TEMPERATURE).mean()
    loss = ALPHA * repulsion + BETA * decorrelation
    loss.backward()
    assert float(value) == pytest.approx(loss.item(), rel=1e-5)
    for found, expected in zip(gradients, theirs, strict=True):
        scale = np.abs(expected.grad.numpy()).max()
        np.testing.assert_allclose(found, expected.grad.numpy(), atol=1e-5 * scale)


@pytest.mark.exact
def test_the_loss_is_the_same_on_several_devices():
    def loss(rows, shared, own, gather, psum):
        views, projected = (jnp.moveaxis(array, 1, 0) for array in rows)
        return scd(views, projected, psum, 8)

    assert_sharded_is_whole(loss, (random(8, 2, 4), random(8, 2, 5, seed=5)))
