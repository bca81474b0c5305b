"""Rotary positions: queries and keys are rotated by their positions, so that their product depends on their distance.

Su et al. 2021, "RoFormer: Enhanced transformer with rotary position embedding" (arXiv:2104.09864), section 3.2.2, with
the pairs as transformers and the released models have them: number i of a head belongs to number i + d/2.
Shapes: B sentences, or 1 where all have the same positions; T tokens, H heads, d numbers in a head.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.model_types import RotaryScaling


class Rotation(NamedTuple):
    """The cosines and sines of each position's d/2 angles."""

    cos: Float[Array, "_B 1 T half"]
    sin: Float[Array, "_B 1 T half"]

    def first(self) -> "Rotation":
        """The rotation of each sentence's first token."""
        return Rotation(self.cos[:, :, :1], self.sin[:, :, :1])


def frequencies(head_size: int, base: float, scaling: RotaryScaling | None = None) -> Float[np.ndarray, " half"]:
    """θᵢ = base^(−2i/d) for i from 0 to d/2 − 1, in radians for each position; float32, as in the released models.

    Scaled, for texts s times longer than the n tokens that the model was first trained on, a share rᵢ of each stays:

        θᵢ′ = rᵢ θᵢ + (1 − rᵢ) θᵢ / s

    `linear`: r = 0 (Chen et al. 2023, arXiv:2306.15595). `llama3`: by the turns of n tokens, n θᵢ / 2π, r grows from 0
    at `low` to 1 at `high` of them (Llama 3.1's code). `yarn`: r falls from 1 to 0 between the numbers i whose n tokens
    turn `high` and `low` times (Peng et al. 2023, arXiv:2309.00071, section 3.2, with i rounded as in their code).
    """
    exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    usual = np.float32(1.0) / np.float32(base) ** exponents
    if scaling is None:
        return usual
    kept = np.zeros(len(usual), np.float32)
    if scaling.kind == "llama3":
        turns = scaling.length * usual / (2 * math.pi)
        kept = np.clip((turns - scaling.low) / (scaling.high - scaling.low), 0, 1)
    elif scaling.kind == "yarn":
        first, last = (
            head_size * math.log(scaling.length / (turns * 2 * math.pi)) / (2 * math.log(base))
            for turns in (scaling.high, scaling.low)
        )
        if scaling.rounded:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, head_size - 1)
        last += 0.001 * (first == last)
        kept = 1 - np.clip((np.arange(len(usual), dtype=np.float32) - first) / (last - first), 0, 1)
    return (usual * (kept + (1 - kept) / scaling.factor)).astype(np.float32)


def rotation(
    positions: Int[AnyArray, "_B T"], head_size: int, base: float, scaling: RotaryScaling | None = None
) -> Rotation:
    """The rotation of heads of d = `head_size` numbers, which must be even, at these positions."""
    angles = jnp.asarray(positions, jnp.float32)[:, None, :, None] * frequencies(head_size, base, scaling)
    if scaling is None or scaling.attention == 1.0:
        return Rotation(jnp.cos(angles), jnp.sin(angles))
    return Rotation(scaling.attention * jnp.cos(angles), scaling.attention * jnp.sin(angles))


def rotate(x: Float[Array, "B H T d"], by: Rotation | None) -> Float[Array, "B H T d"]:
    """`x` with each pair (xᵢ, xᵢ₊d/₂) turned by its angle, computed in float32; without a rotation `x` itself."""
    if by is None:
        return x
    left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([left * by.cos - right * by.sin, right * by.cos + left * by.sin], axis=-1)
    return turned.astype(x.dtype)
