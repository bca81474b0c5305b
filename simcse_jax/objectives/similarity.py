"""How similar embeddings are; losses of many similarities, some rows at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives.chunks import in_chunks

SIMILARITIES = 2**22  # computed at a time: all of a batch of 16,384 take 1 GiB, and their gradients as much


def normalize(x: Float[AnyArray, "... D"]) -> Float[Array, "... D"]:
    """Rows of length 1. The lower limit keeps a zero vector's gradient finite, as in PyTorch's cosine similarity."""
    norm_squared = jnp.sum(x * x, axis=-1, keepdims=True)
    return jnp.multiply(x, jax.lax.rsqrt(jnp.maximum(norm_squared, 1e-16)))


def cosine(first: Float[AnyArray, "B D"], second: Float[AnyArray, "B D"]) -> Float[Array, " B"]:
    """The cosine of each pair."""
    return jnp.sum(normalize(first) * normalize(second), axis=1)


def comparable(similarity: str, *embeddings: Float[AnyArray, "... D"]) -> list[Float[Array, "... D"]]:
    """Embeddings whose dot products are their similarities, cosine or dot."""
    prepared: Any = {"cosine": normalize, "dot": jnp.asarray}[similarity]
    return [prepared(rows) for rows in embeddings]


def map_rows(function: Callable[..., Any], columns: int, *rows: Any) -> Any:
    """`function(*rows)` in chunks of at most `SIMILARITIES` values, `columns` for each row; see `in_chunks`."""
    return in_chunks(function, max(1, SIMILARITIES // columns), *rows)


def replace_rows(
    values: Shaped[AnyArray, " R"],
    wanted: Bool[AnyArray, " R"],
    function: Callable[..., Any],
    columns: int,
    *rows: Shaped[AnyArray, "R ..."],
) -> Shaped[Array, " R"]:
    """`values`, with the rows that are `wanted` replaced by those of `function(*rows)`, without gradient.

    As many are computed at a time as in `map_rows`. Rows that are not wanted take no time: they come last, and the loop
    ends before them.
    """
    size = min(len(values), max(1, SIMILARITIES // columns))
    first = jnp.argsort(~wanted, stable=True)
    first = jnp.pad(first, (0, -len(values) % size), mode="edge")  # computed twice, in the worst case

    def block(number: Array, values: Array) -> Array:
        slots = jax.lax.dynamic_slice_in_dim(first, number * size, size)
        computed = function(*(row[slots] for row in rows)).astype(values.dtype)
        return values.at[slots].set(jnp.where(wanted[slots], computed, values[slots]))

    return jax.lax.fori_loop(0, -(-jnp.sum(wanted) // size), block, values)
