import jax.numpy as jnp
import numpy as np
from support.checks import assert_gradient, assert_sharded_is_whole, random

from simcse_jax.objectives.softmax_nli import softmax_nli

LABELS = np.array([0, 1, 2, 2, 1, 0, 0, 2])


def by_the_equation(first, second, kernel, labels):
    """SBERT's o = softmax(W (u, v, |u − v|)), one pair at a time in float64."""
    losses = []
    for u, v, label in zip(np.float64(first), np.float64(second), labels, strict=True):
        features = [*u, *v, *(abs(a - b) for a, b in zip(u, v, strict=True))]
        scores = [np.exp(sum(x * weight for x, weight in zip(features, column, strict=True))) for column in kernel.T]
        losses.append(-np.log(scores[label] / sum(scores)))
    return np.array(losses)


def test_is_sbert_s():
    (first, second), kernel = random(2, 8, 4), random(12, 3, seed=1)
    ours = softmax_nli(first, second, LABELS, kernel)
    np.testing.assert_allclose(ours, by_the_equation(first, second, kernel, LABELS), rtol=1e-4, atol=1e-5)


def test_by_hand():
    # u = 2, v = 5, |u − v| = 3, each the score of one class: scores 2, 5, 3. The losses of labels 0 and 1 are
    # log(e² + e⁵ + e³) − 2 and − 5.
    ours = softmax_nli(jnp.full((2, 1), 2.0), jnp.full((2, 1), 5.0), jnp.array([0, 1]), jnp.eye(3))
    np.testing.assert_allclose(ours, np.log(np.e**2 + np.e**5 + np.e**3) - np.array([2, 5]), rtol=1e-6)


def test_gradient():
    assert_gradient(
        lambda x, kernel: jnp.sum(softmax_nli(x[0], x[1], LABELS[:3], kernel)),
        lambda x, kernel: np.sum(by_the_equation(x[0], x[1], kernel, LABELS[:3])),
        *(random(2, 3, 2), random(6, 3, seed=1)),
    )


def test_sharded_is_whole():
    def loss(x, kernel, own, gather, psum):
        return psum(jnp.sum(softmax_nli(x[:, 0], x[:, 1], jnp.asarray(LABELS)[own], kernel))) / 8

    assert_sharded_is_whole(loss, random(8, 2, 4), random(12, 3, seed=1))
