"""Dropout whose mask belongs to an example: one PRNG key per row, no hidden state.

An element of a mask is a function of (row key, site, head, query position, key position or channel)
and of nothing else. `jax.random.bits(key, shape)` does not have this property: it numbers the elements
of `shape`, so a longer padding renumbers them. Threefry is a function of (key, counter), so we build the
counter from the coordinates themselves. Written out in jnp it also fuses with the product it masks,
which the library's call does not on CPU.
"""

import jax
import jax.numpy as jnp

LANES = 4  # one threefry block is 64 bits: four masks of 16 bits


def threefry2x32(key: tuple[jax.Array, jax.Array], x0: jax.Array, x1: jax.Array) -> tuple[jax.Array, jax.Array]:
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


def dropout(
    row_keys: jax.Array | None, site: int, x: jax.Array, rate: jax.Array | float, *, lane_axis: int
) -> jax.Array:
    """Drops elements of `x` with probability `rate` and scales the others by 1 / (1 - rate).

    Args:
      row_keys: (B,) typed threefry keys, one an example; None for a deterministic pass.
      site: a number that no other dropout of the model has.
      x: (B, T, D) hidden states or (B, H, T, T) attention probabilities.
      rate: in [0, 1), taken to the nearest 2⁻¹⁶; may be traced.
      lane_axis: the axis of `x` whose size does not depend on padding (channels or heads). Four of its
        elements share a threefry block.

    Returns:
      An array like `x`.
    """
    if row_keys is None:
        return x
    words = jax.random.key_data(row_keys)
    if words.shape != (x.shape[0], 2):
        raise ValueError(f"dropout wants one threefry key per row: keys {row_keys.shape}, rows {x.shape[0]}")
    words = words.reshape(words.shape + (1,) * (x.ndim - 1))
    site_key = threefry2x32((words[:, 0], words[:, 1]), jnp.uint32(site), jnp.uint32(0))

    lanes = x.shape[lane_axis]
    shape = [1, *x.shape[1:]]
    shape[lane_axis] = -(-lanes // LANES)
    group, *positions = [
        jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        for axis in (lane_axis % x.ndim, *(axis for axis in range(1, x.ndim) if axis != lane_axis % x.ndim))
    ]
    b0, b1 = threefry2x32(site_key, group << 16 | positions[0], positions[1] if len(positions) > 1 else jnp.uint32(0))
    low = jnp.uint32(0xFFFF)
    draws = jnp.concatenate([b0 & low, b0 >> 16, b1 & low, b1 >> 16], axis=lane_axis)
    draws = jax.lax.slice_in_dim(draws, 0, lanes, axis=lane_axis)

    threshold = jnp.round(jnp.asarray(rate, jnp.float32) * 65536).astype(jnp.uint32)
    scale = 1.0 / (1.0 - threshold.astype(jnp.float32) / 65536)
    # In float32 whatever x is: a scale rounded to bfloat16 would shift the mean.
    return jnp.where(draws >= threshold, x.astype(jnp.float32) * scale, 0.0).astype(x.dtype)
