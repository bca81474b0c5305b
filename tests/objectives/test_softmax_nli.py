import jax.numpy as jnp
import numpy as np
from support.checks import random
from support.equations import assert_is_equation

from simcse_jax.objectives.softmax_nli import softmax_nli

LABELS, WEIGHTS = np.array([0, 1, 2, 2, 1, 0, 0, 2]), np.float32([1, -2, 3, 1, 2, 3, -1, 1])


def test_value_and_gradient_are_sbert_s():
    """o = softmax(W (u, v, |u − v|))."""

    def equation(pair, kernel):
        scores = np.exp(np.concatenate([*pair, np.abs(pair[0] - pair[1])], axis=1) @ kernel)
        return WEIGHTS @ -np.log(scores[np.arange(8), LABELS] / scores.sum(axis=1))

    assert_is_equation(
        lambda pair, kernel: jnp.sum(WEIGHTS * softmax_nli(*pair, LABELS, kernel)),
        equation,
        *(random(2, 8, 2), random(6, 3, seed=1)),
    )
