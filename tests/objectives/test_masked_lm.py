import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checks import assert_gradient, assert_sharded_is_whole, random
from conftest import row_keys

from simcse_jax.models.dropout import dropout
from simcse_jax.objectives.masked_lm import mask_tokens, masked_lm, select_positions

SPECIAL, MASK, WORDS = (0, 1, 2, 3, 4), 4, 1000
NAMES = ("dense.kernel", "dense.bias", "norm.scale", "norm.bias", "bias")


def mask(keys, ids, attention_mask=None, **changes):
    arguments = {"special_ids": SPECIAL, "mask_id": MASK, "vocab_size": WORDS} | changes
    attention_mask = np.ones_like(ids) if attention_mask is None else attention_mask
    return [np.asarray(x) for x in jax.jit(functools.partial(mask_tokens, **arguments))(keys, ids, attention_mask)]


def random_ids(rows, length, seed=0):
    return np.random.default_rng(seed).integers(5, WORDS, (rows, length)).astype(np.int32)


def assert_rate(found, expected):
    """Within four standard errors."""
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / found.size))


def test_rates_are_bert_s():
    ids = random_ids(2000, 64)
    masked, selected = mask(row_keys(2000), ids)
    assert masked.dtype == ids.dtype
    assert_rate(selected, 0.15)
    np.testing.assert_array_equal(masked[~selected], ids[~selected])
    became_mask = masked[selected] == MASK
    stayed = masked[selected] == ids[selected]
    assert_rate(became_mask, 0.8 + 0.1 / WORDS)
    assert_rate(stayed, 0.1 + 0.1 / WORDS)
    # The random tokens are uniform over the vocabulary: chi-squared over tenths of it, 9 degrees of freedom.
    drawn = masked[selected][~became_mask & ~stayed]
    counts = np.histogram(drawn, 10, (0, WORDS))[0]
    assert np.sum((counts - counts.mean()) ** 2) / counts.mean() < 33  # p = 0.0001
    assert drawn.min() < 20 and drawn.max() > WORDS - 20
    # No position, no neighbour and no row has more or other draws than the rest.
    assert np.abs(selected.mean(0) - 0.15).max() < 5 * np.sqrt(0.15 * 0.85 / 2000)
    assert_rate(selected[:, 1:] & selected[:, :-1], 0.15**2)
    assert_rate(selected[1:] & selected[:-1], 0.15**2)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_any_probability(probability):
    selected = mask(row_keys(200), random_ids(200, 50), probability=probability)[1]
    assert_rate(selected, probability) if 0 < probability < 1 else np.testing.assert_array_equal(selected, probability)


def test_specials_and_padding_are_never_selected():
    ids = np.random.default_rng(0).integers(0, 10, (500, 20)).astype(np.int32)
    attention_mask = (np.arange(20) < np.random.default_rng(1).integers(3, 21, (500, 1))).astype(np.int32)
    masked, selected = mask(row_keys(500), ids, attention_mask, probability=1.0)
    np.testing.assert_array_equal(selected, (ids > 4) & (attention_mask > 0))
    np.testing.assert_array_equal(masked[~selected], ids[~selected])
    everything = mask(row_keys(500), ids, probability=1.0, special_ids=())[1]
    assert np.all(everything)


def test_a_token_s_fate_is_its_row_s_and_position_s_alone():
    keys, ids = row_keys(40), random_ids(40, 24)
    masked, selected = mask(keys, ids)
    assert np.any(selected[:, :10]) and np.any(selected[7])
    for ours, whole in zip(mask(keys, ids[:, :10]), (masked, selected), strict=True):  # another padding
        np.testing.assert_array_equal(ours, whole[:, :10])
    for ours, whole in zip(mask(keys[7:9], ids[7:9]), (masked, selected), strict=True):  # other rows beside it
        np.testing.assert_array_equal(ours, whole[7:9])
    other = ids.copy()
    other[:, 0] = 2  # another token before it
    np.testing.assert_array_equal(mask(keys, other)[1][:, 1:], selected[:, 1:])
    assert np.any(mask(row_keys(40, seed=1), ids)[1] != selected)


def test_no_dropout_of_the_same_key_has_the_same_draws():
    selected = mask(row_keys(40), random_ids(40, 24), probability=0.5)[1]
    for site in range(4):
        dropped = np.asarray(dropout(row_keys(40), site, jnp.ones((40, 24, 4)), 0.5, lane_axis=2)) == 0
        agreement = np.mean(dropped == selected[:, :, None], axis=(0, 1))
        assert np.abs(agreement - 0.5).max() < 5 * np.sqrt(0.25 / selected.size)


def test_a_key_a_row():
    with pytest.raises(ValueError, match="one threefry key per row"):
        mask(row_keys(3), random_ids(4, 5))


def test_selected_positions_come_first():
    selected = jnp.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], bool)
    positions, valid = select_positions(selected, 2)
    assert positions.dtype == jnp.int32
    np.testing.assert_array_equal(valid, [[True, True], [True, False], [False, False]])
    np.testing.assert_array_equal(positions[0], [1, 3])
    assert positions[1, 0] == 4
    with pytest.raises(ValueError, match="6 positions of a row of 5"):
        select_positions(selected, 6)


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2


def by_the_equation(hidden, labels, parameters, words, activation, eps):
    """−log softmax(E LayerNorm(act(W h + b)) + b_V), a prediction and a word at a time in float64."""
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


def ours(hidden, labels, parameters, words, eps=1e-3, activation=jax.nn.relu):
    return masked_lm(hidden, labels, dict(zip(NAMES, parameters, strict=True)), words, activation=activation, eps=eps)


@pytest.mark.parametrize("eps", [1e-12, 0.1])
def test_is_the_head_of_bert(eps):
    hidden, labels, head, words = random(6, 4), np.array([0, 3, 8, 8, 2, 1]), random_head(4, 9), random(9, 4, seed=1)
    found = ours(hidden, labels, head, words, eps, lambda x: jax.nn.gelu(x, approximate=False))
    expected = by_the_equation(hidden, labels, head, words, gelu, eps)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_by_hand():
    # h = (1, 3), an identity for W, no activation: the norm makes it (−1, 1), scale and shift (2, 2) + (1, 0): (−1, 2).
    # Words (1, 0), (0, 1), (0, 0) with biases 0, 0, 1: scores −1, 2, 1. The loss of word 1: log(e^−1 + e² + e) − 2.
    head = [jnp.eye(2), jnp.zeros(2), jnp.full(2, 2.0), jnp.array([1.0, 0.0]), jnp.array([0.0, 0.0, 1.0])]
    words = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    found = ours(jnp.array([[1.0, 3.0]]), jnp.array([1]), head, words, 1e-12, lambda x: x)
    np.testing.assert_allclose(found, [np.log(np.exp(-1) + np.exp(2) + np.e) - 2], rtol=1e-6)


def test_gradient():
    labels = np.array([1, 4, 0])
    assert_gradient(
        lambda hidden, words, *head: jnp.sum(ours(hidden, labels, head, words, activation=jnp.tanh)),
        lambda hidden, words, *head: np.sum(by_the_equation(hidden, labels, head, words, np.tanh, 1e-3)),
        *(random(3, 4), random(5, 4, seed=1), *random_head(4, 5)),
    )


@pytest.mark.parametrize("block", [2**22, 14])  # of 8 × 7 logits: all at once, or two predictions at a time
def test_sharded_is_whole(monkeypatch, block):
    monkeypatch.setattr("simcse_jax.objectives.info_nce.SIMILARITIES", block)
    labels = jnp.array([1, 4, 0, 0, 6, 2, 5, 3])

    def loss(hidden, shared, own, gather, psum):
        words, *head = shared
        return psum(jnp.sum(ours(hidden, labels[own], head, words))) / 8

    assert_sharded_is_whole(loss, random(8, 4), [random(7, 4, seed=1), *random_head(4, 7)])


def test_is_float32_whatever_the_encoder_is():
    head, words = random_head(4, 9), random(9, 4, seed=1)
    hidden = jnp.asarray(random(6, 4), jnp.bfloat16)
    found = ours(hidden, np.arange(6), head, words)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, ours(hidden.astype(jnp.float32), np.arange(6), head, words))
