import jax.numpy as jnp
import numpy as np
from support.checks import random
from support.equations import assert_is_equation

from simcse_jax.objectives.embedding_mse import embedding_mse

TEACHER = random(2, 6, 5, seed=3)


def test_value_and_gradient_are_the_equation_s():
    weights = np.float32([1, -2, 3, 1, 2, -1])
    assert_is_equation(
        lambda rows: jnp.sum(weights * embedding_mse(rows, TEACHER)),
        lambda rows: np.sum(weights * np.mean((rows - np.float64(TEACHER)) ** 2, axis=(0, 2))),
        random(2, 6, 5),
    )


def test_sentences_that_an_example_lacks_do_not_count():
    ours, teacher = random(3, 2, 4), random(3, 2, 4, seed=1)
    found = embedding_mse(ours, teacher, np.array([[1, 1], [1, 1], [1, 0]], bool))
    whole, fewer = np.mean((ours - teacher)[:, 0] ** 2), np.mean((ours - teacher)[:2, 1] ** 2)
    np.testing.assert_allclose(found, [whole, fewer], rtol=1e-6)
