"""How embeddings are compared: by cosine, dot product, Euclidean or Manhattan distance. The nearest scores highest."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Shaped
from numpy.typing import DTypeLike

from simcse_jax.errors import UserError
from simcse_jax.models.config import SIMILARITIES

PRODUCTS = SIMILARITIES[:2]  # the cosine is the product of vectors of unit length
ALIGNMENT = 64  # bytes: JAX copies what starts elsewhere, even on a CPU
PART = 512  # rows at a time, which usually stay in a core's cache between norm and division


def check_similarity(name: str) -> None:
    """Refuses a name that is not in `SIMILARITIES`."""
    if name not in SIMILARITIES:
        raise UserError(f"similarity_fn_name={name!r}: not one of {', '.join(SIMILARITIES)}")


def norm_order(name: str) -> int:
    """The order of the norm that bounds how much a change of a vector changes its similarities."""
    return 1 if name == "manhattan" else 2


def prepared(
    x: Float[np.ndarray, "N D"], name: str, lengths: Float[np.ndarray, "N 1"] | None = None
) -> Float[np.ndarray, "N D"]:
    """The vectors that are compared: for `cosine`, of unit length (zeros stay zeros); `lengths` if known."""
    if name != "cosine":
        return x
    lengths = np.linalg.norm(x, axis=1, keepdims=True) if lengths is None else lengths
    return x / np.maximum(lengths, np.finfo(np.float32).tiny)


def similarities(a: Float[np.ndarray, "N D"], b: Float[np.ndarray, "M D"], name: str) -> Float[np.ndarray, "N M"]:
    """The similarities of all pairs."""
    check_similarity(name)
    a, b = prepared(a, name), prepared(b, name)
    if name in PRODUCTS:
        return a @ b.T
    by_row = [-np.linalg.norm(row - b, ord=norm_order(name), axis=1) for row in a]
    return np.stack(by_row) if by_row else np.zeros((0, len(b)), a.dtype)


def pairwise(a: Float[np.ndarray, "N D"], b: Float[np.ndarray, "N D"], name: str) -> Float[np.ndarray, " N"]:
    """The similarity of each row of `a` with the same row of `b`."""
    check_similarity(name)
    a, b = prepared(a, name), prepared(b, name)
    if name in PRODUCTS:
        return np.sum(a * b, axis=1)
    return -np.linalg.norm(a - b, ord=norm_order(name), axis=1)


def scores(queries: Float[Array, "Q D"], rows: Float[Array, "R D"], name: str) -> Float[Array, "Q R"]:
    """The same on a device, for prepared vectors; distances are summed one query at a time, without cancellation."""
    if name in PRODUCTS:
        return jax.lax.dot_general(queries, rows, (((1,), (1,)), ((), ())), precision=jax.lax.Precision.HIGHEST)
    if name == "euclidean":
        return jax.lax.map(lambda query: -jnp.sqrt(jnp.sum(jnp.square(rows - query), axis=1)), queries)
    return jax.lax.map(lambda query: -jnp.sum(jnp.abs(rows - query), axis=1), queries)


def compared(
    embeddings: Float[np.ndarray, "n D"], similarity: str
) -> tuple[Float32[np.ndarray, "n D"], Float[np.ndarray, "n 1"]]:
    """The vectors that are compared, (n, D) aligned, and the embeddings' lengths, (n, 1), computed in threads.

    Lengths are not finite where embeddings are not. The embeddings may be mapped from a file and are read once.
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
    """An uninitialized array that is aligned for JAX to use without a copy on a CPU."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.empty(size + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + size].view(dtype).reshape(shape)


def aligned(rows: Shaped[np.ndarray, "R C"]) -> Shaped[np.ndarray, "R C"]:
    """The same rows, copied if not aligned."""
    if rows.ctypes.data % ALIGNMENT == 0 and rows.flags.c_contiguous:
        return rows
    copy = empty(rows.shape, rows.dtype)
    copy[:] = rows
    return copy
