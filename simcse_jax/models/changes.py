"""Augmentations in the embedding layer: shuffled token positions, or some columns set to zero.

A change belongs to an example, as a dropout mask does: it is drawn from the row's key, and padding, chunks and devices
do not change it. Shapes: B sentences, T tokens, D hidden size.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.dropout import draws

SHUFFLE_SITE, CUTOFF_SITE = 1 << 16, (1 << 16) + 1  # above those of any number of layers


class Change(NamedTuple):
    """What the embedding layer does to sentences in addition to embedding them; None: nothing."""

    positions: Int[AnyArray, "B T"] | None = None  # of each token, from 0: a permutation of the real tokens' own
    kept: Bool[AnyArray, "B D"] | None = None  # False at the columns that are zero in all tokens of a sentence


UNCHANGED = Change()


def shuffled(keys: Key[Array, " B"], attention_mask: Int[AnyArray, "B T"]) -> Change:
    """The positions permuted among the real tokens of each sentence, [CLS] and [SEP] included.

    ConSERT's token shuffling (Yan et al. 2021, Section 3.2): an encoder knows the order of its tokens by their
    positions alone, so other positions are another order. All n! permutations of n tokens are equally likely, the
    identity too.
    """
    bits = draws(keys, SHUFFLE_SITE, attention_mask.shape[1])
    last = jnp.uint32(0xFFFFFFFF)  # equal draws stay in their order, so padding comes after a token that drew this
    return Change(positions=jnp.argsort(jnp.where(attention_mask > 0, bits, last), axis=1, stable=True))


def cutoff(keys: Key[Array, " B"], size: int, share: Float[AnyArray, ""] | float) -> Change:
    """⌊share · D⌋ columns of each sentence zero in all of its tokens, and no rescaling.

    ConSERT's feature cutoff (Section 3.2; Shen et al. 2020). The columns are drawn for each sentence.

    `share`: from 0 to 1; may be traced. The product is rounded to float32 before it is rounded down.
    """
    order = jnp.argsort(draws(keys, CUTOFF_SITE, size), axis=1, stable=True)
    ranks = jnp.argsort(order, axis=1)  # of each column: exactly one has each rank, also where draws are equal
    return Change(kept=ranks >= jnp.floor(jnp.float32(share) * jnp.float32(size)).astype(jnp.int32))


Draw = Callable[[Key[Array, " B"], Int[AnyArray, "B T"], int, Float[AnyArray, ""] | float], Change]

# By the names of `config.CHANGES`, without none: from the rows' keys, the mask, D and the share to the change. A change
# of the tokens themselves, as by a masked language model, would be made before the encoder, where the ids are.
DRAWN: dict[str, Draw] = {
    "shuffled": lambda keys, attention_mask, size, share: shuffled(keys, attention_mask),
    "cutoff": lambda keys, attention_mask, size, share: cutoff(keys, size, share),
}
