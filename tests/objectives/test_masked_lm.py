import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS
from support.checks import assert_gradient, assert_sharded_is_whole, random

from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.masked_lm import masked_lm

NAMES = ("dense.kernel", "dense.bias", "norm.scale", "norm.bias", "bias")
CONFIG = EncoderConfig.from_hugging_face(CONFIGS["bert"], "test")


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2


def silu(x):
    return x / (1 + np.exp(-x))


def by_the_equation(hidden, labels, parameters, words, activation, eps):
    """−log softmax(E LayerNorm(act(W h + b)) + b_V), one prediction and one word at a time in float64."""
    kernel, bias, scale, shift, word_bias = (np.float64(parameter) for parameter in parameters)
    losses = []
    for h, label in zip(np.float64(hidden), labels, strict=True):
        x = activation(h @ kernel + bias)
        x = (x - x.mean()) / np.sqrt(x.var() + eps) * scale + shift
        scores = [np.exp(sum(x * np.float64(word)) + b) for word, b in zip(words, word_bias, strict=True)]
        losses.append(-np.log(scores[label] / sum(scores)))
    return np.array(losses)


def random_head(size, words):
    shapes = ((size, size), (size,), (size,), (size,), (words,))
    return [random(*shape, seed=seed) for seed, shape in enumerate(shapes, 10)]


def ours(hidden, labels, parameters, words, eps=1e-3, activation="relu"):
    config = dataclasses.replace(CONFIG, hidden_act=activation, layer_norm_eps=eps)
    return masked_lm(hidden, labels, dict(zip(NAMES, parameters, strict=True)), words, config)


@pytest.mark.parametrize("eps", [1e-12, 0.1])
def test_is_the_head_of_bert(eps):
    hidden, labels, head, words = random(6, 4), np.array([0, 3, 8, 8, 2, 1]), random_head(4, 9), random(9, 4, seed=1)
    found = ours(hidden, labels, head, words, eps, "gelu")
    expected = by_the_equation(hidden, labels, head, words, gelu, eps)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_by_hand():
    # h = (1, 3), W = I, and ReLU changes neither: the norm gives (−1, 1), scale (2, 2) and shift (1, 0) then (−1, 2).
    # Words (1, 0), (0, 1), (0, 0) with biases 0, 0, 1: scores −1, 2, 1. The loss of word 1: log(e^−1 + e² + e) − 2.
    head = [jnp.eye(2), jnp.zeros(2), jnp.full(2, 2.0), jnp.array([1.0, 0.0]), jnp.array([0.0, 0.0, 1.0])]
    words = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    found = ours(jnp.array([[1.0, 3.0]]), jnp.array([1]), head, words, 1e-12)
    np.testing.assert_allclose(found, [np.log(np.exp(-1) + np.exp(2) + np.e) - 2], rtol=1e-6)


def test_gradient():
    labels = np.array([1, 4, 0])
    assert_gradient(
        lambda hidden, words, *head: jnp.sum(ours(hidden, labels, head, words, activation="silu")),
        lambda hidden, words, *head: np.sum(by_the_equation(hidden, labels, head, words, silu, 1e-3)),
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
    head, words = random_head(4, 9), random(9, 4, seed=1)
    hidden = jnp.asarray(random(6, 4), jnp.bfloat16)
    found = ours(hidden, np.arange(6), head, words)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, ours(hidden.astype(jnp.float32), np.arange(6), head, words))
