import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, random
from support.graded import SCORES, assert_is_peer_s, assert_ranking_sharded_is_whole, loss

from simcse_jax.objectives.angle import angle_similarity


@pytest.mark.parametrize("size", [6, 5])
def test_is_sentence_transformers_loss(size):
    assert_is_peer_s(
        lambda rows, scores: loss(rows, scores, similarity=angle_similarity), "AnglELoss", random(2, 8, size), SCORES
    )


def by_the_equation(rows):
    """|Re + Im of Σ x y*| of complex vectors of length 1, in float64."""
    first, second = np.float64(rows)
    first, second = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    half = first.shape[1] // 2
    product = np.sum((first[:, :half] + 1j * first[:, half:]) * np.conj(second[:, :half] + 1j * second[:, half:]), 1)
    return np.abs(product.real + product.imag)


def test_similarity_is_that_of_complex_vectors():
    rows = random(2, 7, 6)
    np.testing.assert_allclose(angle_similarity(*rows), by_the_equation(rows), rtol=1e-5)
    assert_gradient(
        lambda rows: jnp.sum(angle_similarity(*rows)), lambda rows: by_the_equation(rows).sum(), random(2, 3, 4)
    )


def test_a_vector_with_itself_is_1_and_a_turned_one_is_not():
    x = np.float32([[3, 4]])
    np.testing.assert_allclose(angle_similarity(x, x), 1, rtol=1e-6)
    np.testing.assert_allclose(angle_similarity(x, np.float32([[-4, 3]])), 1, rtol=1e-6)  # the sine alone
    np.testing.assert_allclose(angle_similarity(x, np.float32([[7, 1]])), np.sqrt(2), rtol=1e-6)  # 45 degrees


def test_sharded_is_whole():
    assert_ranking_sharded_is_whole(angle_similarity)
