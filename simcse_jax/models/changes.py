"""Changes of a sentence: shuffled positions, or columns set to zero, in the embedding layer; other tokens.

A change belongs to an example, as a dropout mask does: it is drawn from the row's key, and padding, chunks and devices
do not change it. Shapes: B sentences, T tokens, D hidden size.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import Template
from simcse_jax.models.dropout import draws

# Above those of any number of layers.
SHUFFLE_SITE, CUTOFF_SITE, REPETITION_SITE = ((1 << 16) + number for number in range(3))


class Change(NamedTuple):
    """A change that the embedding layer makes to sentences; None: no change."""

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


@dataclasses.dataclass(frozen=True)
class Repeated:
    """Some tokens of each sentence twice, one right after the other, which makes it that much longer.

    ESimCSE's sub-word repetition (Wu et al. 2022, arXiv:2109.04380, equations 3 and 4). How many are repeated is drawn
    for each sentence, and which ones: neither the first nor the last token, [CLS] and [SEP]. A sentence of N others
    repeats up to max(2, ⌊rate · N⌋) of them in the paper, and at most all. In its authors' code it is one fewer than
    min(10, ⌊rate · (N + 2)⌋), since `randrange` leaves its end out.
    """

    rate: float
    reading: str = "paper"  # of `config.REPETITIONS`

    def most(self, length: int) -> int:
        """The most tokens that are repeated in a sentence of `length`, [CLS] and [SEP] included."""
        words = max(length - 2, 0)
        if self.reading == "paper":
            return min(words, max(2, int(self.rate * words)))
        return min(words, max(0, min(10, int(self.rate * length)) - 1))

    def __call__(
        self, keys: Key[Array, " B"], ids: Int[AnyArray, "B T"], attention_mask: Int[AnyArray, "B T"]
    ) -> tuple[Int[Array, "B W"], Int[Array, "B W"]]:
        """The ids and the mask, in W = T + most(T) places, so that nothing is cut."""
        ids, mask = jnp.asarray(ids), jnp.asarray(attention_mask)
        places = jnp.arange(ids.shape[1])
        lengths = jnp.sum(mask > 0, axis=1)
        limits = jnp.array([self.most(length) for length in range(ids.shape[1] + 1)], jnp.uint32)
        bits = draws(keys, REPETITION_SITE, ids.shape[1])
        count = bits[:, 0] % (limits[lengths] + 1)  # the first token, which is never repeated, has no other use of them
        inner = (places > 0) & (places < lengths[:, None] - 1)
        order = jnp.argsort(jnp.where(inner, bits >> 1, jnp.uint32(0xFFFFFFFF)), axis=1, stable=True)
        ranks = jnp.argsort(order, axis=1).astype(jnp.uint32)
        copies = (inner & (ranks < count[:, None])).astype(jnp.int32)
        ends = jnp.cumsum((mask > 0) + copies, axis=1)  # of each token with its copy
        wide = jnp.arange(ids.shape[1] + self.most(ids.shape[1]))
        source = jnp.sum(ends[:, None] <= wide[:, None], axis=2)  # which token stands in each place
        repeated = jnp.take_along_axis(ids, jnp.minimum(source, ids.shape[1] - 1), axis=1)
        return repeated, (wide < ends[:, -1:]).astype(mask.dtype)


@dataclasses.dataclass(frozen=True)
class Retemplated:
    """Another template around each sentence, in the place of the one that its tokens have."""

    template: Template
    other: Template

    @property
    def growth(self) -> int:
        """How many tokens more a sentence has then."""
        return self.other.size - self.template.size

    def __call__(
        self, keys: Key[Array, " B"], ids: Int[AnyArray, "B T"], attention_mask: Int[AnyArray, "B T"]
    ) -> tuple[Int[Array, "B W"], Int[Array, "B W"]]:
        """The ids and the mask, in W places, T or as many more as the other template is longer."""
        ids, mask = jnp.asarray(ids), jnp.asarray(attention_mask)
        before, after = len(self.other.before), jnp.array(self.other.after, ids.dtype)
        places = jnp.arange(ids.shape[1] + max(self.growth, 0))
        ends = jnp.sum(mask > 0, axis=1, keepdims=True) + self.growth
        source = jnp.clip(places - before + len(self.template.before), 0, ids.shape[1] - 1)
        changed = ids[:, source].at[:, :before].set(jnp.array(self.other.before, ids.dtype))
        if len(after):
            place = places - (ends - len(after))  # in the text after the sentence
            changed = jnp.where(place >= 0, after[jnp.clip(place, 0, len(after) - 1)], changed)
        return changed, (places < ends).astype(mask.dtype)


def template_alone(
    template: Template, lengths: Int[Array, " B"], first: int = 0
) -> tuple[Int[Array, "B W"], Int[Array, "B W"], Change]:
    """The W tokens of a template without a sentence, at the positions that they have around B sentences.

    That is PromptBERT's template denoising (Jiang et al. 2022, arXiv:2201.04337), which takes the embedding of these
    from that of the sentence.

    Args:
      template: around the sentences.
      lengths: of the sentences with their template.
      first: what is added to all positions.

    Returns:
      Ids, mask and positions.
    """
    rows = (len(lengths), template.size)
    places = jnp.arange(template.size)
    words = jnp.maximum(lengths - template.size, 0)[:, None]
    positions = first + places + jnp.where(places >= len(template.before), words, 0)
    ids = jnp.array(template.before + template.after, jnp.int32)
    return jnp.broadcast_to(ids, rows), jnp.ones(rows, jnp.int32), Change(positions=positions)


Draw = Callable[[Key[Array, " B"], Int[AnyArray, "B T"], int, Float[AnyArray, ""] | float], Change]

# By the names of `config.CHANGES`, without none: from the rows' keys, the mask, D and the share to the change. A change
# of the tokens themselves, as by a masked language model, would be made before the encoder, where the ids are.
DRAWN: dict[str, Draw] = {
    "shuffled": lambda keys, attention_mask, size, share: shuffled(keys, attention_mask),
    "cutoff": lambda keys, attention_mask, size, share: cutoff(keys, size, share),
}
