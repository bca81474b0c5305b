import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS
from support.checks import assert_sharded_is_whole, random
from support.equations import assert_is_equation

from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.mlm import masked_lm

NAMES = ("dense.kernel", "dense.bias", "norm.scale", "norm.bias", "bias")
CONFIG = EncoderConfig.from_hugging_face(CONFIGS["bert"], "test")
ACTIVATIONS = {
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def by_the_equation(hidden, labels, parameters, words, activation, eps):
    """−log softmax(E LayerNorm(act(W h + b)) + b_V)."""
    kernel, bias, scale, shift, word_bias = parameters
    x = ACTIVATIONS[activation](hidden @ kernel + bias)
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps) * scale + shift
    scores = np.exp(x @ words.T + word_bias)
    return -np.log(scores[np.arange(len(labels)), labels] / scores.sum(1))


def random_head(size, words):
    shapes = ((size, size), (size,), (size,), (size,), (words,))
    return [random(*shape, seed=seed) for seed, shape in enumerate(shapes, 10)]


def ours(hidden, labels, parameters, words, eps=1e-3, activation="relu"):
    config = dataclasses.replace(CONFIG, hidden_act=activation, layer_norm_eps=eps)
    return masked_lm(hidden, labels, dict(zip(NAMES, parameters, strict=True)), words, config)


@pytest.mark.parametrize(("activation", "eps"), [("gelu", 0.1), ("silu", 1e-3)])
def test_value_and_gradient_are_those_of_the_head_of_bert(activation, eps):
    labels, weights = np.array([1, 4, 0]), np.float32([1, -2, 3])
    assert_is_equation(
        lambda hidden, words, *head: jnp.sum(weights * ours(hidden, labels, head, words, eps, activation)),
        lambda hidden, words, *head: weights @ by_the_equation(hidden, labels, head, words, activation, eps),
        *(random(3, 4), random(5, 4, seed=1), *random_head(4, 5)),
    )


@pytest.mark.parametrize("block", [2**22, 14])  # of 8 × 7 logits: all at once, or two predictions at a time
def test_sharded_is_whole(monkeypatch, block):
    monkeypatch.setattr("simcse_jax.objectives.similarity.SIMILARITIES", block)
    labels = jnp.array([1, 4, 0, 0, 6, 2, 5, 3])

    def loss(hidden, shared, own, gather, psum):
        words, *head = shared
        return psum(jnp.sum(ours(hidden, labels[own], head, words))) / 8

    assert_sharded_is_whole(loss, random(8, 4), [random(7, 4, seed=1), *random_head(4, 7)])


def test_is_float32_whatever_the_encoder_s_dtype():
    head, words, labels = random_head(4, 9), random(9, 4, seed=1), np.arange(6)
    hidden = jnp.asarray(random(6, 4), jnp.bfloat16)
    found = ours(hidden, labels, head, words)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, ours(hidden.astype(jnp.float32), labels, head, words))
