"""Rows of an index: as they are compared, in float32, and placed where a CPU's device takes them without a copy."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float, Float32, Shaped
from numpy.typing import DTypeLike

from simcse_jax.index.similarity import prepared

ALIGNMENT = 64  # bytes: JAX copies what starts elsewhere, even on a CPU
PART = 512  # rows at a time: of usual sizes they stay in a core's cache between the norm and the division


def compared(
    embeddings: Float[np.ndarray, "n D"], similarity: str
) -> tuple[Float32[np.ndarray, "n D"], Float[np.ndarray, "n 1"]]:
    """The vectors that are compared, and the lengths of the embeddings, in threads: NumPy lets go of the interpreter.

    Args:
      embeddings: (n, D), which may be mapped from a file; they are read once.
      similarity: one of `index.similarity`; for `cosine` the rows have unit length.

    Returns:
      (n, D) float32, aligned, and (n, 1); a length is not finite where an embedding is not.
    """
    rows = empty(embeddings.shape, np.float32)

    def make(start: int) -> np.ndarray:
        some = embeddings[start : start + PART]
        lengths = np.linalg.norm(some, axis=1, keepdims=True)
        rows[start : start + PART] = prepared(some, similarity, lengths)
        return lengths

    with ThreadPoolExecutor() as pool:
        lengths = list(pool.map(make, range(0, max(len(rows), 1), PART)))
    return rows, np.concatenate(lengths)


def empty(shape: tuple[int, ...], dtype: DTypeLike) -> Shaped[np.ndarray, "..."]:
    """An array that starts where a CPU's device can take it as it is, with any content."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(shape)


def aligned(rows: Shaped[np.ndarray, "R C"]) -> Shaped[np.ndarray, "R C"]:
    """The same rows, copied if they start where a CPU's device could not take them as they are."""
    if rows.ctypes.data % ALIGNMENT == 0 and rows.flags.c_contiguous:
        return rows
    found = empty(rows.shape, rows.dtype)
    found[:] = rows
    return found
