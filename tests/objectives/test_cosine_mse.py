import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, cosine, random
from support.equations import assert_is_equation
from support.graded import assert_is_peer_s

from simcse_jax.objectives.cosine_mse import cosine_mse

SCORES = np.float32([0, 0.2, 1, 0.5, 0.5, 0.9, 0.1, 0.3])


def mean(rows, scores=SCORES):
    return jnp.mean(cosine_mse(*rows, scores))


@pytest.mark.slow
def test_is_sentence_transformers_loss():
    assert_is_peer_s(mean, "CosineSimilarityLoss", random(2, 8, 6), SCORES)


def test_value_and_gradient_are_the_equation_s():
    def equation(rows):
        return np.mean([(cosine(x, y) - np.float64(score)) ** 2 for x, y, score in zip(*rows, SCORES, strict=True)])

    assert_is_equation(mean, equation, random(2, 8, 4))


def test_sharded_is_whole():
    def loss(rows, shared, own, gather, psum):
        return psum(jnp.sum(cosine_mse(*rows, jnp.asarray(SCORES)[own]))) / 8

    assert_sharded_is_whole(loss, tuple(random(2, 8, 6)))
