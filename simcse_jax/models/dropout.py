"""Dropout whose mask belongs to an example: one PRNG key per row, no hidden state.

An element of a mask is a function of (row key, site, head, query position, key position or channel)
and of nothing else. `jax.random.bits(key, shape)` does not have this property: it numbers the elements
of `shape`, so a longer padding renumbers them. Threefry is a function of (key, counter), so we build the
counter from the coordinates themselves.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt8, UInt32

from simcse_jax.models.platforms import for_platform

Words = tuple[UInt32[Array, "..."], UInt32[Array, "..."]]  # 64 bits as two words
Rate = Float[Array, ""] | float
Place = Int[Array, ""] | int
DropoutMask = Bool[Array, "..."]
LANES = 4  # one threefry block is 64 bits: four masks of 16 bits


class Mask(NamedTuple):
    """The elements of an array that dropout keeps, and the factor that it multiplies them by: 1 / (1 - rate)."""

    keep: Bool[Array, "..."]
    scale: Float[Array, ""]


def drop(x: Float[Array, "*shape"], mask: Mask | None) -> Float[Array, "*shape"]:
    """`x` scaled where the mask keeps it, and zeros elsewhere; without a mask (a deterministic pass) `x` itself."""
    if mask is None:
        return x
    if mask.keep.shape != x.shape:
        raise ValueError(f"dropout needs one threefry key per row: masks {mask.keep.shape}, values {x.shape}")
    # Always in float32: a scale rounded to bfloat16 would shift the mean.
    return jnp.where(mask.keep, x.astype(jnp.float32) * mask.scale, 0.0).astype(x.dtype)


@jax.jit  # traced once, not at every use, which halves the text of a step's program
def threefry2x32(key: Words, x0: UInt32[Array, "..."], x1: UInt32[Array, "..."]) -> Words:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3")."""
    k0, k1 = key
    schedule = (k0, k1, k0 ^ k1 ^ jnp.uint32(0x1BD11BDA))
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for group in range(5):
        for rotation in rotations[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << rotation | x1 >> (32 - rotation)) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def draws(row_keys: Key[Array, " B"], site: int, count: int) -> UInt32[Array, "B N"]:
    """32 random bits for each of N = `count` places of a row; a place's depend on (row key, site, place) alone."""
    words = jax.random.key_data(row_keys)
    if words.ndim != 2 or words.shape[1] != 2:
        raise ValueError(f"draws need one threefry key per row: keys {row_keys.dtype}{list(row_keys.shape)}")
    site_key = threefry2x32((words[:, :1], words[:, 1:]), jnp.uint32(site), jnp.uint32(0))
    return threefry2x32(site_key, jnp.arange(count, dtype=jnp.uint32)[None], jnp.uint32(0))[0]


def token_masks(
    keys: Key[Array, "..."], positions: Int[Array, "..."], sites: Sequence[Place], size: int, rate: Rate
) -> list[Mask]:
    """Masks of hidden states: channels of tokens are dropped with probability `rate`.

    Args:
      keys: typed threefry keys; a token has the key of its example.
      positions: the tokens' positions in their sentences. Keys and positions are broadcast to the tokens' shape.
      sites: a number for each mask, which no other dropout of the model has.
      rate: in [0, 1), rounded to the nearest 2⁻¹⁶; may be traced.
    """

    def counters() -> Words:
        groups = jnp.arange(-(-size // LANES), dtype=jnp.uint32) << 16
        return groups | positions[..., None].astype(jnp.uint32), jnp.uint32(0)

    return _masks(keys, sites, counters, size, rate, lane_axis=-1)


def attention_masks(
    row_keys: Key[Array, " B"],
    sites: Sequence[Place],
    shape: tuple[int, int, int],
    rate: Rate,
    first: tuple[Place, Place] = (0, 0),
) -> list[Mask]:
    """Like `token_masks`, for (B, H, Q, K) attention probabilities: takes (B,) keys, and (H, Q, K) as `shape`.

    `first` are the positions of the first query and of the first key.
    """
    heads, queries, keys = shape
    first_query, first_key = (jnp.asarray(place).astype(jnp.uint32) for place in first)

    def counters() -> Words:
        by_four = (1, -(-heads // LANES), queries, keys)
        group, query, key = (jax.lax.broadcasted_iota(jnp.uint32, by_four, axis) for axis in (1, 2, 3))
        return group << 16 | query + first_query, key + first_key

    return _masks(row_keys[:, None, None], sites, counters, heads, rate, lane_axis=1)


class Draws(NamedTuple):
    """Masks of attention's probabilities that are drawn where they are needed, a part at a time."""

    row_keys: Key[Array, " B"]
    site: Place
    rate: Rate

    def mask(self, shape: tuple[int, int, int], first: tuple[Place, Place] = (0, 0)) -> Mask:
        """The mask (B, H, Q, K) of the queries and keys from these positions on; takes (H, Q, K) as `shape`."""
        (mask,) = attention_masks(self.row_keys, [self.site], shape, self.rate, first)
        return mask


def _masks(
    keys: Key[Array, "..."],
    sites: Sequence[Place],
    counters: Callable[[], Words],
    size: int,
    rate: Rate,
    lane_axis: int,
) -> list[Mask]:
    """Masks from the bits of the counters; four elements along `lane_axis`, which has `size`, share a counter.

    A CPU draws one site after another in a loop. Outside a loop its compiler would copy the draws into everything that
    reads a mask, which took most of the time to compile a step. On TPUs that is cheap, and reading a mask from memory
    is not. GPUs draw once and keep four elements in a byte, an eighth of the bytes of the values that are dropped.
    `docs/background/encoding.md` has the numbers.
    """
    words = jax.random.key_data(keys)
    if words.shape[-1] != 2:
        raise ValueError(f"dropout needs one threefry key per row: keys {keys.dtype}")
    threshold = jnp.round(jnp.asarray(rate, jnp.float32) * 65536).astype(jnp.uint32)

    def site_keys(site: UInt32[Array, "..."], words: UInt32[Array, "... 2"]) -> Words:
        """This site's key for each row, with a last axis that the mask's elements share."""
        return threefry2x32((words[..., :1], words[..., 1:]), site, jnp.uint32(0))

    def draw(site_key: Words) -> list[DropoutMask]:
        b0, b1 = threefry2x32(site_key, *counters())
        low = jnp.uint32(0xFFFF)
        return [draws >= threshold for draws in (b0 & low, b0 >> 16, b1 & low, b1 >> 16)]

    def together(lanes: Sequence[DropoutMask]) -> DropoutMask:
        axis = lane_axis % lanes[0].ndim
        return jax.lax.slice_in_dim(jnp.concatenate(lanes, axis), 0, size, axis=axis)

    def packed(site_key: Words) -> UInt8[Array, "..."]:  # four lanes in a byte
        lanes = [kept.astype(jnp.uint8) << lane for lane, kept in enumerate(draw(site_key))]
        return functools.reduce(jnp.bitwise_or, lanes)

    def unpacked(mask: UInt8[Array, "..."]) -> DropoutMask:
        """As `together`, by an axis of lanes: a GPU would compute each part of a concatenation for all of it."""
        axis = lane_axis % mask.ndim
        lane = jnp.arange(LANES, dtype=jnp.uint8).reshape(-1, *[1] * (mask.ndim - axis))
        lanes = (jnp.expand_dims(mask, axis) >> lane & 1) != 0
        return jax.lax.slice_in_dim(jax.lax.collapse(lanes, axis, axis + 2), 0, size, axis=axis)

    def where_used(words: UInt32[Array, "... 2"]) -> list[DropoutMask]:
        return [together(draw(site_keys(jnp.uint32(site), words))) for site in sites]

    def once(words: UInt32[Array, "... 2"]) -> list[DropoutMask]:
        masks = [packed(site_keys(jnp.uint32(site), words)) for site in sites]
        return [unpacked(mask) for mask in jax.lax.optimization_barrier(masks)]

    def in_a_loop(words: UInt32[Array, "... 2"]) -> list[DropoutMask]:
        numbers = jnp.array(sites, jnp.uint32).reshape(-1, *[1] * words.ndim)
        masks = jax.lax.map(packed, site_keys(numbers, words[None]))
        return [together([(mask >> lane & 1) != 0 for lane in range(LANES)]) for mask in masks]

    scale = 1.0 / (1.0 - threshold.astype(jnp.float32) / 65536)
    masks = for_platform(words, cpu=in_a_loop, tpu=where_used, default=once)
    return [Mask(keep, scale) for keep in masks]
