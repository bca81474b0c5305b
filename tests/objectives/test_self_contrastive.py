import jax.numpy as jnp
import numpy as np
from support.checks import cosine, random
from support.equations import assert_is_equation

from simcse_jax.objectives.self_contrastive import self_contrastive


def test_value_and_gradient_are_the_similarity_of_the_views_over_the_temperature():
    """Plus: views repel each other."""
    weights = np.float32([1, -2, 3, 2, 1, 1])
    assert_is_equation(
        lambda first, second: jnp.sum(weights * self_contrastive(first, second, temperature=0.05)),
        lambda *views: weights @ [cosine(a, b) / 0.05 for a, b in zip(*views, strict=True)],
        *random(2, 6, 4),
    )
