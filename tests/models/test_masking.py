import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import row_keys

from simcse_jax.models.dropout import drop, token_masks
from simcse_jax.models.masking import gumbel, mask_tokens, select_positions, token_keys

SPECIAL, MASK, WORDS = (0, 1, 2, 3, 4), 4, 1000
run = jax.jit(mask_tokens, static_argnames=("special_ids", "mask_id", "vocab_size"))


def mask(keys, ids, attention_mask=None, probability=0.15, special_ids=SPECIAL):
    attention_mask = np.ones_like(ids) if attention_mask is None else attention_mask
    fixed = {"special_ids": special_ids, "mask_id": MASK, "vocab_size": WORDS}
    return [np.asarray(x) for x in run(keys, ids, attention_mask, probability=probability, **fixed)]


def random_ids(rows, length, seed=0):
    return np.random.default_rng(seed).integers(5, WORDS, (rows, length)).astype(np.int32)


def assert_rate(found, expected):
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


def test_words_are_drawn_with_their_probabilities_and_no_dropout_of_the_same_key_has_the_same_draws():
    probabilities = np.array([0.5, 0.0, 0.2, 0.25, 0.05])
    scores = np.log(probabilities + 1e-30) - 40
    keys = [part.ravel() for part in token_keys(row_keys(200), 50)]
    assert len({*zip(*(part.tolist() for part in keys), strict=True)}) == 10_000
    noise = np.asarray(gumbel(*keys, 5))
    drawn = np.argmax(scores + noise, axis=1)
    for word, probability in enumerate(probabilities):
        assert_rate(drawn == word, probability) if probability else np.testing.assert_equal((drawn == word).sum(), 0)
    assert np.isfinite(noise).all() and np.mean(noise) == pytest.approx(0.5772, abs=4 * 1.2825 / np.sqrt(noise.size))
    # A word's noise depends on neither other words nor the tokens that `mask_tokens` selects by the same keys.
    assert np.abs(np.corrcoef(noise, rowvar=False) - np.eye(5)).max() < 0.05
    _, selected = mask(row_keys(200), random_ids(200, 50), probability=0.5)
    assert abs(np.corrcoef(noise[:, 0], selected.ravel())[0, 1]) < 0.04
    selected = mask(row_keys(200), random_ids(200, 50), probability=0.5)[1]
    keys, places, sites = row_keys(200)[:, None], jnp.arange(50)[None], [*range(4)]
    for drawn in jax.jit(lambda keys: token_masks(keys, places, sites, 4, 0.5))(keys):
        dropped = np.asarray(drop(jnp.ones((200, 50, 4)), drawn)) == 0
        agreement = np.mean(dropped == selected[:, :, None], axis=(0, 1))
        assert np.abs(agreement - 0.5).max() < 5 * np.sqrt(0.25 / selected.size)


def test_the_noise_of_a_large_vocabulary_is_never_infinite():
    """A middle of 2²⁴ parts would be: once in 67 tokens of 250,000 words, so three times here."""
    count = jax.jit(lambda first, second: jnp.sum(~jnp.isfinite(gumbel(first, second, 250_000))))
    assert count(*(part.ravel() for part in token_keys(row_keys(20), 10))) == 0


def test_specials_are_never_selected_and_a_token_s_fate_depends_on_its_row_and_position_alone():
    ids = np.random.default_rng(0).integers(0, 10, (200, 50)).astype(np.int32)
    attention_mask = (np.arange(50) < np.random.default_rng(1).integers(3, 51, (200, 1))).astype(np.int32)
    masked, selected = mask(row_keys(200), ids, attention_mask, probability=1.0)
    np.testing.assert_array_equal(selected, (ids > 4) & (attention_mask > 0))
    np.testing.assert_array_equal(masked[~selected], ids[~selected])
    assert np.all(mask(row_keys(200), ids, probability=1.0, special_ids=())[1])
    assert_rate(mask(row_keys(200), random_ids(200, 50), probability=0.5)[1], 0.5)
    assert not mask(row_keys(200), ids, probability=0.0)[1].any()
    with pytest.raises(ValueError, match="one threefry key per row"):
        mask(row_keys(3), random_ids(4, 5))
    keys, ids = row_keys(200), random_ids(200, 50)
    masked, selected = mask(keys, ids)
    assert np.any(selected[:, :10]) and np.any(selected[7])
    for ours, whole in zip(mask(keys[7:9], ids[7:9, :10]), (masked, selected), strict=True):
        np.testing.assert_array_equal(ours, whole[7:9, :10])  # other rows around it, and another padding
    other = ids.copy()
    other[:, 0] = 2  # another token before it
    np.testing.assert_array_equal(mask(keys, other)[1][:, 1:], selected[:, 1:])
    assert np.any(mask(row_keys(200, seed=1), ids)[1] != selected)


def test_selected_positions_come_first():
    selected = jnp.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], bool)
    positions, valid = select_positions(selected, 2)
    assert positions.dtype == jnp.int32
    np.testing.assert_array_equal(valid, [[True, True], [True, False], [False, False]])
    np.testing.assert_array_equal(positions[0], [1, 3])
    assert positions[1, 0] == 4
    with pytest.raises(ValueError, match="6 positions asked for in rows of 5"):
        select_positions(selected, 6)
