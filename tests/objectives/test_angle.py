import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import random
from support.equations import assert_is_equation

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
