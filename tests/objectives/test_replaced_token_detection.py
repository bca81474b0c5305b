import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from support import random_model
from support.checks import random
from support.equations import assert_is_equation
from support.steps import alone

from simcse_jax.objectives.replaced_token_detection import ReplacedTokenDetection, replaced_token_detection

OBJECTIVE = ReplacedTokenDetection()

REPLACED = np.array([[False, True, True], [False, False, True]])


def by_the_equation(hidden, kernel, bias):
    scores = hidden @ kernel + bias
    return np.log(np.exp(scores).sum(axis=2)) - np.where(REPLACED, scores[..., 1], scores[..., 0])


def test_is_the_cross_entropy_of_a_decision_for_each_token():
    weights = random(2, 3, seed=3)
    assert_is_equation(
        lambda hidden, *layer: jnp.sum(weights * replaced_token_detection(hidden, REPLACED, *layer)),
        lambda *args: np.sum(weights * by_the_equation(*args)),
        *(random(2, 3, 4), random(4, 2, seed=1), random(2, seed=2)),
    )


def test_the_term_is_the_mean_over_the_tokens_of_all_devices_or_over_sentences_the_mean_of_their_sums():
    found = jnp.array([3.0, 1.0]), jnp.array([5, 3]), jnp.array([2.0, 3.0]), jnp.array([4.0, 2.0])
    seen = alone({"anchor": jnp.zeros((2, 4))}, psum=lambda x: 2 * x, tokens=found)
    assert float(OBJECTIVE.loss(seen, masking_rate=0.3)) == 0.5
    assert float(OBJECTIVE.loss(seen, masking_rate=0.3, reduction="sum")) == 4 / (2 * 2)  # of two pairs' sentences
    assert OBJECTIVE.measures(seen) == {"replaced": 5 / 8, "accuracy": 6 / 8, "majority": 5 / 8}
    none = dataclasses.replace(seen, tokens=[jnp.zeros(2), jnp.zeros(2, int)] * 2)
    assert float(OBJECTIVE.loss(none, masking_rate=0.3)) == 0


def test_its_layer_starts_as_pytorch_starts_one_and_its_encoder_from_the_same_weights():
    _, _, encoder = random_model()
    params = OBJECTIVE.parameters.fresh(encoder, jax.random.key(0))
    assert params.keys() == {"replaced_token_detection.kernel", "replaced_token_detection.bias"}
    kernel, bias = (params[f"replaced_token_detection.{name}"] for name in ("kernel", "bias"))
    bound = 32**-0.5
    assert kernel.shape == (32, 2) and 0.9 * bound < np.abs(kernel).max() <= bound
    assert bias.shape == (2,) and 0 < np.abs(bias).max() <= bound
    assert OBJECTIVE.parameters.copy_of_encoder == "discriminator."
