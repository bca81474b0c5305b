import jax.numpy as jnp
import numpy as np
from support.checks import cosine, random
from support.equations import assert_is_equation

from simcse_jax.objectives.cosine_mse import cosine_mse

SCORES = np.float32([0, 0.2, 1, 0.5, 0.5, 0.9, 0.1, 0.3])


def test_value_and_gradient_are_the_equation_s():
    def equation(rows):
        return np.mean([(cosine(x, y) - np.float64(score)) ** 2 for x, y, score in zip(*rows, SCORES, strict=True)])

    assert_is_equation(lambda rows: jnp.mean(cosine_mse(*rows, SCORES)), equation, random(2, 8, 4))
