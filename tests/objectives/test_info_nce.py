import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from simcse_jax.objectives.info_nce import info_nce


def by_the_equation(anchors, positives, negatives, temperature, alpha):
    """SimCSE, equation 8, term by term in float64."""

    def similarity(a, b):
        return a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) / temperature

    anchors, positives = np.float64(anchors), np.float64(positives)
    losses = []
    for i, anchor in enumerate(anchors):
        total = 0.0
        for j in range(len(positives)):
            total += np.exp(similarity(anchor, positives[j]))
            if negatives is not None:
                total += alpha ** (i == j) * np.exp(similarity(anchor, np.float64(negatives[j])))
        losses.append(-np.log(np.exp(similarity(anchor, positives[i])) / total))
    return np.array(losses)


@pytest.fixture
def embeddings():
    return np.random.default_rng(0).normal(size=(3, 6, 5)).astype(np.float32)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_is_equation_8(embeddings, temperature, alpha):
    anchors, positives, _ = embeddings
    ours = info_nce(*embeddings, np.arange(6), temperature=temperature, hard_negative_weight=alpha)
    np.testing.assert_allclose(ours, by_the_equation(*embeddings, temperature, alpha), rtol=1e-4, atol=1e-5)
    pairs = info_nce(anchors, positives, None, np.arange(6), temperature=temperature)
    np.testing.assert_allclose(pairs, by_the_equation(anchors, positives, None, temperature, 1), rtol=1e-4, atol=1e-5)


def test_by_hand():
    # Two orthogonal examples, each its own positive: cosines 1 and 0, so −log(e / (e + 1)).
    pair = jnp.array([[2.0, 0.0], [0.0, 3.0]])
    expected = np.log(1 + np.exp(-1))
    np.testing.assert_allclose(info_nce(pair, pair, None, jnp.arange(2), temperature=1.0), expected, rtol=1e-6)
    # Hard negatives equal to the anchors: the own one adds α e, the other one 1.
    losses = info_nce(pair, pair, pair, jnp.arange(2), temperature=1.0, hard_negative_weight=2.0)
    np.testing.assert_allclose(losses, np.log((3 * np.e + 2) / np.e), rtol=1e-6)


def test_a_weight_of_zero_leaves_the_own_hard_negative_out(embeddings):
    def total(x, alpha):
        return jnp.sum(info_nce(*x, jnp.arange(6), temperature=0.05, hard_negative_weight=alpha))

    ours = info_nce(*embeddings, np.arange(6), temperature=0.05, hard_negative_weight=0.0)
    np.testing.assert_allclose(ours, by_the_equation(*embeddings, 0.05, 0.0), rtol=1e-4, atol=1e-5)
    assert np.all(np.isfinite(jax.grad(total)(embeddings, 0.0)))


def test_local_rows_of_a_larger_batch_know_their_own(embeddings):
    whole = info_nce(*embeddings, np.arange(6), temperature=0.05)
    part = info_nce(embeddings[0, 4:], *embeddings[1:], np.array([4, 5]), temperature=0.05)
    np.testing.assert_allclose(part, whole[4:], rtol=1e-5)


def test_gradient(embeddings):
    def total(x):
        return jnp.sum(info_nce(*x, jnp.arange(6), temperature=0.5, hard_negative_weight=2.0))

    check_grads(total, (jnp.asarray(embeddings),), order=1, modes=["rev"], atol=1e-2, rtol=1e-2)


def test_a_zero_embedding_has_a_finite_gradient():
    def total(x):
        return jnp.sum(info_nce(x, x, None, jnp.arange(2), temperature=0.05))

    assert np.all(np.isfinite(jax.grad(total)(jnp.array([[0.0, 0.0], [1.0, 2.0]]))))
