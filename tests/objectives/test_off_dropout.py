import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, cosine, random

from simcse_jax.objectives import off_dropout as module
from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.objectives.negatives import Candidates

off_dropout = jax.jit(module.off_dropout, static_argnames="reading")
READINGS = pytest.mark.parametrize("reading", ["paper", "released"])


def by_the_equation(z1, z2, z, positives, kinds, temperature, m, reading="paper"):
    """SimCSE++, equation 3 or its authors' code, with hard negatives, term by term in float64."""

    def s(a, b):
        return cosine(np.float64(a), np.float64(b)) / temperature

    losses = []
    for i in range(len(z1)):
        negatives = sum(np.exp(s(z[i], positives[j])) for j in range(len(z)) if j != i)
        negatives += sum(np.exp(s(z[i], negative)) for kind in kinds for negative in kind)
        positive = np.exp(s(z1[i], z2[i]) * (m if reading == "released" else 1))
        losses.append(-np.log(positive / (positive + negatives * (m if reading == "paper" else 1))))
    return np.array(losses)


@READINGS
@pytest.mark.parametrize("m", [0.5, 0.9, 1.2])
@pytest.mark.parametrize("kinds", [0, 1, 2])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_is_equation_3(temperature, kinds, m, reading):
    x = random(6, 6, 5)
    hard_negatives = [None, x[4], x[4:]][kinds]
    ours = off_dropout(*x[:4], hard_negatives, np.arange(6), temperature=temperature, m=m, reading=reading)
    expected = by_the_equation(*x[:4], x[4 : 4 + kinds], temperature, m, reading)
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
    # As released, with equal positives and m = 2: e² against 1.
    ours = off_dropout(z1, z1, z1, z1, None, jnp.arange(2), temperature=1.0, m=2.0, reading="released")
    np.testing.assert_allclose(ours, np.log(1 + np.exp(-2)), rtol=1e-6)


@READINGS
def test_what_m_does_to_the_gradient(reading):
    """64 examples, positives at cosine 0.8, negatives at 0.2, τ = 0.05: ∂ℓ/∂cosine of the positive pair.

    By hand, −1/τ · a / (1 + a) with a = 63 m e^{(0.2 − 0.8) / τ} in `paper`; −m/τ · a / (1 + a) with
    a = 63 e^{(0.2 − 0.8 m) / τ} in `released`.
    """
    expected = {
        "paper": {0.5: -0.0039, 0.9: -0.0070, 1.0: -0.0077, 1.2: -0.0093},
        "released": {0.5: -5.36, 0.9: -0.034, 1.0: -0.0077, 1.2: -0.0004},
    }
    eye = jnp.eye(128)
    clean = jnp.linalg.cholesky(jnp.full((64, 64), 0.2) + 0.8 * jnp.eye(64))  # rows at cosine 0.2 to each other
    clean = jnp.pad(clean, ((0, 0), (0, 64)))

    @jax.jit
    @functools.partial(jax.grad, argnums=0)
    def gradients(cosines, m):
        positives = cosines[:, None] * eye[:64] + jnp.sqrt(1 - cosines[:, None] ** 2) * eye[64:]
        fields = {"temperature": 0.05, "m": m, "reading": reading}
        return jnp.sum(module.off_dropout(eye[:64], positives, clean, clean, None, jnp.arange(64), **fields))

    for m, gradient in expected[reading].items():
        found = gradients(jnp.full(64, 0.8), m)
        np.testing.assert_allclose(found, gradient, atol=0.00005 if abs(gradient) < 0.01 else 0.005)


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
    candidates = Candidates(np.concatenate([np.ones((1, 6), bool), there]))
    ours = off_dropout(*x[:4], x[4:], np.arange(6), temperature=0.05, m=0.9, candidates=candidates)
    kinds = [kind[mask] for kind, mask in zip(x[4:], there, strict=True)]
    np.testing.assert_allclose(ours, by_the_equation(*x[:4], kinds, 0.05, 0.9), rtol=1e-4, atol=1e-5)


def test_gradient():
    def ours(x):
        return jnp.sum(off_dropout(*x[:4], x[4], jnp.arange(3), temperature=0.5, m=0.7))

    assert_gradient(ours, lambda x: np.sum(by_the_equation(*x[:4], x[4:], 0.5, 0.7)), random(5, 3, 2))


@pytest.mark.parametrize("block", [2**22, 32])  # of 8 × 16 similarities: all at once, or two rows at a time
def test_sharded_is_whole(monkeypatch, block):
    monkeypatch.setattr("simcse_jax.objectives.similarity.SIMILARITIES", block)

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
