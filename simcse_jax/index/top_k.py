"""The k rows of a matrix that are nearest to each query: scores and a running top k, a block of rows after another.

Never more than the scores of one block are there, and a block's shape is one of few, so that a step compiles once
for each of them, however many rows there are in all.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Float32, Int, Int32

from simcse_jax.index.similarity import scores as similarity_scores

MAX_QUERIES = 128  # scored together; fewer are padded to the next power of two


@dataclasses.dataclass(frozen=True)
class Block:
    """Some rows of the matrix."""

    rows: Float32[Array | np.ndarray, "R D"]  # NumPy's are copied to the device when their turn comes
    first: int  # the number of its first row
    count: int  # how many of its rows are meant; the others are padding


class Best(NamedTuple):
    """The best rows so far of Q queries, best first; of equal ones the lower row first."""

    scores: Float32[Array, "Q k"]  # -inf where there are fewer than k
    rows: Int32[Array, "Q k"]


def top_k(
    queries: Float[np.ndarray, "Q D"],
    blocks: Iterable[Block],
    k: int,
    recall_target: float | None = None,
    similarity: str = "dot",
) -> tuple[Float32[np.ndarray, "Q {k}"], Int32[np.ndarray, "Q {k}"]]:
    """The k largest of the products q·x of each query q with all rows x, or of another similarity.

    Products are summed in float32, at the highest precision that the device has.

    Args:
      queries: (Q, D) float32.
      blocks: all rows, in their order.
      k: how many are wanted.
      recall_target: None is exact. Otherwise `jax.lax.approx_max_k` chooses within each block, and should find this
        share of the true ones; it is made for TPUs, and on a CPU it is exact.
      similarity: of `simcse_jax.index.similarity`; for `cosine` queries and rows have unit length.

    Returns:
      Scores (Q, k), float32, largest first, -inf where there are fewer rows than k; and the numbers of the rows (Q, k).
      Of equal scores the lower row comes first.
    """
    size = min(1 << max(len(queries) - 1, 0).bit_length(), MAX_QUERIES)
    parts = []
    for start in range(0, len(queries), size):
        part = queries[start : start + size].astype(np.float32)
        parts.append(jax.device_put(np.pad(part, ((0, size - len(part)), (0, 0)))))
    best = [Best(jnp.full((size, k), -jnp.inf, jnp.float32), jnp.zeros((size, k), jnp.int32)) for _ in parts]
    for block in blocks:
        before, rows = best, jax.device_put(block.rows)
        best = [
            merge(part, rows, block.first, block.count, old, recall_target=recall_target, similarity=similarity)
            for part, old in zip(parts, best, strict=True)
        ]
        if isinstance(block.rows, np.ndarray):
            # At most two blocks are in flight; otherwise all would be sent before the first is done.
            jax.block_until_ready(before)
    if not best:
        return np.zeros((0, k), np.float32), np.zeros((0, k), np.int32)
    scores, rows = (np.concatenate([np.asarray(array) for array in arrays]) for arrays in zip(*best, strict=True))
    return scores[: len(queries)], rows[: len(queries)]


@functools.partial(jax.jit, static_argnames=("recall_target", "similarity"))
def merge(
    queries: Float32[Array, "Q D"],
    rows: Float32[Array, "R D"],
    first: Int[ArrayLike, ""],
    count: Int[ArrayLike, ""],
    best: Best,
    *,
    recall_target: float | None = None,
    similarity: str = "dot",
) -> Best:
    """The best k of those so far and of a block's rows: their scores (Q, R), one choice of k from it, one from 2k.

    Args:
      queries: (Q, D).
      rows, first, count: the block's; `first` is above every row in `best`.
      best: of the rows before.
      recall_target, similarity: see `top_k`.
    """
    scores = similarity_scores(queries, rows, similarity)
    scores = jnp.where(jnp.arange(len(rows)) < count, scores, -jnp.inf)
    k = best.scores.shape[1]
    if recall_target is None:
        found, places = jax.lax.top_k(scores, min(k, len(rows)))
    else:
        found, places = jax.lax.approx_max_k(scores, min(k, len(rows)), recall_target=recall_target)
    # Those so far are lower rows and stand first; of equal elements `top_k` takes the first.
    scores, chosen = jax.lax.top_k(jnp.concatenate([best.scores, found], axis=1), k)
    numbers = jnp.concatenate([best.rows, places + first], axis=1)
    return Best(scores, jnp.take_along_axis(numbers, chosen, axis=1))
