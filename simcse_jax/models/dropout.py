"""Dropout whose mask belongs to an example: one PRNG key per row, no hidden state.

An element of a mask is a function of (row key, site, head, query position, key position or channel)
and of nothing else. `jax.random.bits(key, shape)` does not have this property: it numbers the elements
of `shape`, so a longer padding renumbers them. Threefry is a function of (key, counter), so we build the
counter from the coordinates themselves. Written out in jnp it also fuses with the product it masks,
which the library's call does not on CPU.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt32

Words = tuple[UInt32[Array, "..."], UInt32[Array, "..."]]  # 64 bits as two words
Rate = Float[Array, ""] | float
LANES = 4  # one threefry block is 64 bits: four masks of 16 bits


@jax.jit  # traced once, not at each of its uses: half of a step's text
def threefry2x32(key: Words, x0: UInt32[Array, "..."], x1: UInt32[Array, "..."]) -> Words:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

    Args:
      key: two uint32 words, broadcastable against the counters.
      x0, x1: the counter's two uint32 words.

    Returns:
      Two uint32 words of random bits, in the broadcast shape.
    """
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


def token_dropout(
    keys: Key[Array, "..."] | None, positions: Int[Array, "..."], site: int, x: Float[Array, "*tokens D"], rate: Rate
) -> Float[Array, "*tokens D"]:
    """Drops channels of tokens with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
      keys: typed threefry keys, each token's that of its example; None for a deterministic pass.
      positions: of the tokens in their sentences. Keys and positions are broadcast to `x.shape[:-1]`.
      site: a number that no other dropout of the model has.
      x: (..., D) hidden states.
      rate: in [0, 1), taken to the nearest 2⁻¹⁶; may be traced.

    Returns:
      An array like `x`.

    Raises:
      ValueError: if there is not one threefry key per row of `x`.
    """
    if keys is None:
        return x
    groups = jnp.arange(-(-x.shape[-1] // LANES), dtype=jnp.uint32) << 16
    counter = groups | positions[..., None].astype(jnp.uint32)
    return _drop(_site_key(keys, site, x), counter, jnp.uint32(0), x, rate, lane_axis=x.ndim - 1)


def attention_dropout(
    row_keys: Key[Array, "..."] | None, site: int, x: Float[Array, "B H Q K"], rate: Rate
) -> Float[Array, "B H Q K"]:
    """Like `token_dropout`, of (B, H, Q, K) attention probabilities and (B,) keys."""
    if row_keys is None:
        return x
    _, heads, queries, keys = x.shape
    shape = (1, -(-heads // LANES), queries, keys)
    group, query, key = (jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in (1, 2, 3))
    return _drop(_site_key(row_keys[:, None, None], site, x), group << 16 | query, key, x, rate, lane_axis=1)


def _site_key(keys: Key[Array, "..."], site: int, x: Float[Array, "..."]) -> Words:
    """A key of two words for this site of each row or token, with a last axis that the mask's elements share."""
    words = jax.random.key_data(keys)
    if words.shape[-1] != 2 or keys.ndim != x.ndim - 1 or keys.shape[0] != x.shape[0]:
        raise ValueError(f"dropout wants one threefry key per row: keys {keys.shape}, values {x.shape}")
    return threefry2x32((words[..., :1], words[..., 1:]), jnp.uint32(site), jnp.uint32(0))


def _drop(
    site_key: Words,
    x0: UInt32[Array, "..."],
    x1: UInt32[Array, "..."],
    x: Float[Array, "*shape"],
    rate: Rate,
    *,
    lane_axis: int,
) -> Float[Array, "*shape"]:
    """Masks `x` by the bits of the counters `x0`, `x1`; four of its elements along `lane_axis` share a counter."""
    b0, b1 = threefry2x32(site_key, x0, x1)
    threshold = jnp.round(jnp.asarray(rate, jnp.float32) * 65536).astype(jnp.uint32)
    low = jnp.uint32(0xFFFF)
    # Compared first: what goes through memory is then a byte an element.
    kept = [draws >= threshold for draws in (b0 & low, b0 >> 16, b1 & low, b1 >> 16)]
    keep = jax.lax.slice_in_dim(jnp.concatenate(kept, axis=lane_axis), 0, x.shape[lane_axis], axis=lane_axis)
    scale = 1.0 / (1.0 - threshold.astype(jnp.float32) / 65536)
    # In float32 whatever x is: a scale rounded to bfloat16 would shift the mean.
    return jnp.where(keep, x.astype(jnp.float32) * scale, 0.0).astype(x.dtype)
