"""Rotary positions: queries and keys are rotated by their positions, so that their product depends on their distance.

Su et al. 2021, "RoFormer: Enhanced transformer with rotary position embedding" (arXiv:2104.09864), section 3.2.2, with
the pairs as transformers and the released models have them: number i of a head belongs to number i + d/2.
Shapes: B sentences, or 1 where all have the same positions; T tokens, H heads, d numbers in a head.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray


class Rotation(NamedTuple):
    """The cosines and sines of each position's d/2 angles."""

    cos: Float[Array, "_B 1 T half"]
    sin: Float[Array, "_B 1 T half"]

    def first(self) -> "Rotation":
        """That of each sentence's first token."""
        return Rotation(self.cos[:, :, :1], self.sin[:, :, :1])


def frequencies(head_size: int, base: float) -> Float[np.ndarray, " half"]:
    """θᵢ = base^(−2i/d) for i from 0 to d/2 − 1, in radians for each position; float32, as in the released models."""
    exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    return np.float32(1.0) / np.float32(base) ** exponents


def rotation(positions: Int[AnyArray, "_B T"], head_size: int, base: float) -> Rotation:
    """The rotation of heads of d = `head_size` numbers, which must be even, at these positions."""
    angles = jnp.asarray(positions, jnp.float32)[:, None, :, None] * frequencies(head_size, base)
    return Rotation(jnp.cos(angles), jnp.sin(angles))


def rotate(x: Float[Array, "B H T d"], by: Rotation | None) -> Float[Array, "B H T d"]:
    """`x` with each pair (xᵢ, xᵢ₊d/₂) turned by its angle, computed in float32; without a rotation `x` itself."""
    if by is None:
        return x
    left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([left * by.cos - right * by.sin, right * by.cos + left * by.sin], axis=-1)
    return turned.astype(x.dtype)
