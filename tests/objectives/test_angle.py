import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import random
from support.equations import assert_is_equation
from support.graded import SCORES, assert_is_peer_s, assert_ranking_sharded_is_whole, loss

from simcse_jax.objectives.angle import angle_similarity

WEIGHTS = np.float32([1, -2, 3])


def by_the_equation(rows):
    """|Re + Im of Σ x y*| of complex vectors of length 1."""
    first, second = (np.pad(x, ((0, 0), (0, x.shape[1] % 2))) / np.linalg.norm(x, axis=1, keepdims=True) for x in rows)
    half = first.shape[1] // 2
    product = np.sum((first[:, :half] + 1j * first[:, half:]) * np.conj(second[:, :half] + 1j * second[:, half:]), 1)
    return WEIGHTS @ np.abs(product.real + product.imag)


@pytest.mark.parametrize("size", [4, 5])
def test_similarity_is_that_of_complex_vectors(size):
    assert_is_equation(lambda rows: jnp.sum(WEIGHTS * angle_similarity(*rows)), by_the_equation, random(2, 3, size))


@pytest.mark.slow
def test_is_sentence_transformers_loss():
    assert_is_peer_s(
        lambda rows, scores: loss(rows, scores, similarity=angle_similarity), "AnglELoss", random(2, 8, 5), SCORES
    )


def test_a_vector_with_itself_is_1_and_a_turned_one_is_not():
    x, turned = np.float32([[3, 4]] * 3), np.float32([[3, 4], [-4, 3], [7, 1]])
    # Itself; the sine alone; 45 degrees.
    np.testing.assert_allclose(angle_similarity(x, turned), [1, 1, np.sqrt(2)], rtol=1e-6)


def test_sharded_is_whole():
    assert_ranking_sharded_is_whole(angle_similarity)
