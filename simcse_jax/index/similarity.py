"""How embeddings are compared: by cosine, dot product, Euclidean or Manhattan distance; the nearest has the most."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from simcse_jax.errors import UserError
from simcse_jax.models.config import SIMILARITIES

PRODUCTS = SIMILARITIES[:2]  # the cosine is the product of vectors of unit length


def check_similarity(name: str) -> None:
    """Raises a `UserError` for a name that is none of `SIMILARITIES`."""
    if name not in SIMILARITIES:
        raise UserError(f"similarity_fn_name={name!r}: not one of {', '.join(SIMILARITIES)}")


def norm_order(name: str) -> int:
    """The order of the norm that bounds how much a change of a vector changes its similarities."""
    return 1 if name == "manhattan" else 2


def prepared(
    x: Float[np.ndarray, "N D"], name: str, lengths: Float[np.ndarray, "N 1"] | None = None
) -> Float[np.ndarray, "N D"]:
    """The vectors that are compared: for `cosine` of unit length (zeros stay zeros), otherwise those given.

    `lengths` are theirs, where they are known.
    """
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
    found = [-np.linalg.norm(row - b, ord=norm_order(name), axis=1) for row in a]
    return np.stack(found) if found else np.zeros((0, len(b)), a.dtype)


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
