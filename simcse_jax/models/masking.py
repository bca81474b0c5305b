"""Chooses the tokens that a masked language model has to predict, and the noise to draw what it predicts.

Shapes: B sentences, T tokens, V words.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int, Int32, Key, UInt32

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.dropout import threefry2x32

SITE = 2**32 - 1  # its own; dropout's sites count up from 0
MASKED, RANDOM = 0.8, 0.1  # shares of the selected tokens; the others stay unchanged


class Masking(NamedTuple):
    """The facts about a tokenizer that masking needs."""

    mask_id: int
    special_ids: tuple[int, ...]


def mask_tokens(
    row_keys: Key[Array, "..."],
    input_ids: Int[AnyArray, "B T"],
    attention_mask: Int[AnyArray, "B T"],
    *,
    special_ids: tuple[int, ...],
    mask_id: int,
    vocab_size: int,
    probability: Float32[AnyArray, ""] | float = 0.15,
) -> tuple[Int[Array, "B T"], Bool[Array, "B T"]]:
    """Hides tokens as BERT's pretraining does (Devlin et al. 2019, Section 3.1 and Appendix A.1).

    Every token is selected independently with `probability`. Of the selected tokens, 80% become the mask token, 10% a
    random one, uniform over the whole vocabulary as in BERT's and SimCSE's code (special tokens included), and 10%
    stay. What happens to a token depends on (row key, position) and on nothing else: not on padding, other rows or the
    device.

    Args:
      attention_mask: (B, T), 0 for padding, which is never selected.
      probability: in [0, 1], with a resolution of 2⁻²⁴; may be traced.

    Returns:
      (B, T) ids to encode, and (B, T) booleans: the tokens to predict.
    """
    words = jax.random.key_data(row_keys)
    if words.shape != (input_ids.shape[0], 2):
        raise ValueError(f"mask_tokens needs one threefry key per row: keys {row_keys.shape}, ids {input_ids.shape}")
    chosen, kind = (_uniform(bits) for bits in _bits(words, input_ids.shape[1], 0))
    word, _ = _bits(words, input_ids.shape[1], 1)

    special = jnp.isin(input_ids, jnp.array(special_ids, input_ids.dtype))
    selected = (chosen < probability) & (attention_mask > 0) & ~special
    # The remainder favours the first words by less than V / 2³².
    replaced = jnp.where(kind < MASKED + RANDOM, (word % jnp.uint32(vocab_size)).astype(input_ids.dtype), input_ids)
    replaced = jnp.where(kind < MASKED, mask_id, replaced)
    return jnp.where(selected, replaced, input_ids), selected


def _bits(words: Array, length: int, number: int) -> tuple[UInt32[Array, "B T"], UInt32[Array, "B T"]]:
    """Two draws for each position of each row, of its key's two words; other ones for each number."""
    key = threefry2x32((words[:, :1], words[:, 1:]), jnp.uint32(SITE), jnp.uint32(0))
    return threefry2x32(key, jnp.arange(length, dtype=jnp.uint32)[None], jnp.uint32(number))


def _uniform(bits: UInt32[Array, "B T"]) -> Float32[Array, "B T"]:
    """uint32 words to float32 in [0, 1), exactly."""
    return (bits >> 8).astype(jnp.float32) * 2.0**-24


def token_keys(row_keys: Key[Array, " B"], length: int) -> tuple[UInt32[Array, "B T"], UInt32[Array, "B T"]]:
    """The two words of a key for each position of each row, for `gumbel`; the same keys give `mask_tokens` others."""
    return _bits(jax.random.key_data(row_keys), length, 2)


def gumbel(first: UInt32[AnyArray, " R"], second: UInt32[AnyArray, " R"], size: int) -> Float32[Array, "R V"]:
    """Gumbel noise for each of V words, of the two words of a key.

    The word with the largest sum of score and noise is one drawn from softmax(scores). Rounding hardly ever changes it,
    where the inverse of the distribution function goes to a neighbour in one of two thousand tokens.

    Uniform draws have 23 bits: the middles of 2²³ equal parts of (0, 1) are floats. Those of 2²⁴ are not; the last one
    rounds to 1, whose noise is infinite.
    """
    counters = jnp.arange(-(-size // 2), dtype=jnp.uint32)[None]
    bits = jnp.concatenate(threefry2x32((first[:, None], second[:, None]), counters, jnp.uint32(0)), axis=1)[:, :size]
    return -jnp.log(-jnp.log((bits >> 9).astype(jnp.float32) * 2.0**-23 + 2.0**-24))


def select_positions(
    selected: Bool[Array, "B T"], count: int
) -> tuple[Int32[Array, "B {count}"], Bool[Array, "B {count}"]]:
    """The first `count` selected positions of each row, so that only they need logits.

    Of a row with more than `count`, the last ones are dropped; a row with fewer is filled with unselected positions.
    """
    if count > selected.shape[1]:
        raise ValueError(f"{count} positions asked for in rows of {selected.shape[1]} tokens")
    positions = jnp.argsort(~selected, axis=1, stable=True)[:, :count]
    return positions.astype(jnp.int32), jnp.take_along_axis(selected, positions, axis=1)
