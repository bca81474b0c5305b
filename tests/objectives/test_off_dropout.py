import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, cosine, random

from simcse_jax.objectives import off_dropout as module
from simcse_jax.objectives.info_nce import info_nce

off_dropout = jax.jit(module.off_dropout)


def by_the_equation(z1, z2, z, positives, kinds, temperature, m):
    """SimCSE++, equation 3, with hard negatives, term by term in float64."""

    def s(a, b):
        return cosine(np.float64(a), np.float64(b)) / temperature

    losses = []
    for i in range(len(z1)):
        negatives = sum(np.exp(s(z[i], positives[j])) for j in range(len(z)) if j != i)
        negatives += sum(np.exp(s(z[i], negative)) for kind in kinds for negative in kind)
        losses.append(-np.log(np.exp(s(z1[i], z2[i])) / (np.exp(s(z1[i], z2[i])) + m * negatives)))
    return np.array(losses)


@pytest.mark.parametrize("m", [0.5, 0.9, 1.2])
@pytest.mark.parametrize("kinds", [0, 1, 2])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_is_equation_3(temperature, kinds, m):
    x = random(6, 6, 5)
    hard_negatives = [None, x[4], x[4:]][kinds]
    ours = off_dropout(*x[:4], hard_negatives, np.arange(6), temperature=temperature, m=m)
    expected = by_the_equation(*x[:4], x[4 : 4 + kinds], temperature, m)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_by_hand():
    # Positive pairs at a right angle, cosine 0. Deterministic views x and y: cosine 0 between the two examples.
    # So e⁰ / (e⁰ + m e⁰) = 1 / (1 + m); at m = 3, log 4. Their cosine with themselves, 1, does not count.
    z1, z2 = jnp.eye(2), jnp.eye(2)[::-1]
    ours = off_dropout(z1, z2, z1, z1, None, jnp.arange(2), temperature=1.0, m=3.0)
    np.testing.assert_allclose(ours, np.log(4), rtol=1e-6)
    # Hard negatives equal to the anchors add m (e + 1), the own one and the other one.
    ours = off_dropout(z1, z2, z1, z1, z1, jnp.arange(2), temperature=1.0, m=3.0)
    np.testing.assert_allclose(ours, np.log(1 + 3 * (1 + np.e + 1)), rtol=1e-6)


@pytest.mark.parametrize("kinds", [0, 2])
def test_with_the_same_views_and_no_factor_it_is_info_nce(kinds):
    x = random(4, 6, 5)
    hard_negatives = x[2:] if kinds else None
    own = np.arange(6)
    ours = off_dropout(x[0], x[1], x[0], x[1], hard_negatives, own, temperature=0.05, m=1.0)
    expected = info_nce(x[0], x[1], hard_negatives, own, temperature=0.05)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_negatives_that_are_not_there_are_no_terms_of_the_sums():
    x = random(6, 6, 5)
    there = np.array([[True, False, True, False, False, True], [False, False, True, True, False, False]])
    ours = off_dropout(*x[:4], x[4:], np.arange(6), temperature=0.05, m=0.9, present=there)
    kinds = [kind[mask] for kind, mask in zip(x[4:], there, strict=True)]
    np.testing.assert_allclose(ours, by_the_equation(*x[:4], kinds, 0.05, 0.9), rtol=1e-4, atol=1e-5)


def test_gradient():
    def ours(x):
        return jnp.sum(off_dropout(*x[:4], x[4], jnp.arange(3), temperature=0.5, m=0.7))

    assert_gradient(ours, lambda x: np.sum(by_the_equation(*x[:4], x[4:], 0.5, 0.7)), random(5, 3, 2))


@pytest.mark.parametrize("block", [2**22, 32])  # of 8 × 16 similarities: all at once, or two rows at a time
def test_sharded_is_whole(monkeypatch, block):
    monkeypatch.setattr("simcse_jax.objectives.info_nce.SIMILARITIES", block)

    def loss(x, shared, own, gather, psum):
        whole = jnp.moveaxis(gather(x[:, 3:]), 1, 0)
        losses = module.off_dropout(x[:, 0], x[:, 1], x[:, 2], whole[0], whole[1], own, temperature=0.5, m=0.9)
        return psum(jnp.sum(losses)) / whole.shape[1]

    assert_sharded_is_whole(loss, random(8, 5, 4))


def test_without_negatives_loss_and_gradient_are_zero():
    def total(x, m):
        return jnp.sum(off_dropout(*x[:4], x[4], jnp.arange(3), temperature=0.05, m=m))

    loss, gradient = jax.jit(jax.value_and_grad(total))(random(5, 3, 2), 0.0)
    assert loss == 0 and np.all(np.asarray(gradient) == 0)


def test_large_similarities_do_not_overflow():
    x = random(4, 6, 5)
    ours = off_dropout(*x, None, np.arange(6), temperature=0.001, m=0.9)
    assert np.all(np.isfinite(ours)) and np.max(ours) > 100
