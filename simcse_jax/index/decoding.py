"""Rows on devices as float32: those of 16 bits, of a byte an element, and of a bit an element."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Shaped

from simcse_jax.encoding.quantization import SCALAR, Quantization
from simcse_jax.models.arrays import AnyArray


class Decoding(NamedTuple):
    """An element of a row of bytes is `scale` · code + `shift`."""

    scale: Float32[AnyArray, " D"]
    shift: Float32[AnyArray, " D"]


def decoding_of(quantization: Quantization | None) -> Decoding | None:
    """What `decoded` needs for rows that are stored so."""
    if quantization is None or quantization.precision not in SCALAR:
        return None
    return Decoding(*quantization.affine())


def decoded(rows: Shaped[Array, "R C"], dimension: int, decoding: Decoding | None) -> Float32[Array, "R {dimension}"]:
    """The rows (R, D) that `Quantization.decode` makes of stored ones.

    Args:
      rows: numbers; bytes, int8, if there is a decoding; or packed bits, uint8.
      dimension: D.
      decoding: of bytes.
    """
    if decoding is not None:
        return rows.astype(jnp.float32) * decoding.scale + decoding.shift
    if rows.dtype != jnp.uint8:
        return rows.astype(jnp.float32)
    bits = (rows[:, :, None] >> np.arange(7, -1, -1, dtype=np.uint8)) & 1
    signs = bits.reshape(len(rows), -1)[:, :dimension].astype(jnp.float32) * 2 - 1
    return signs * np.float32(1 / math.sqrt(dimension))
