"""Search in small vectors: candidates by 16 bits, bytes or bits, which are then scored again in float32.

The queries stay in float32. On devices they are compared with the numbers that bytes or bits stand for, which finds
better candidates than bits on both sides do; FAISS counts differing bits. Bytes and bits miss few of the nearest rows.
With 16 bits the result is exact, by a proof for each query:

A vector x is stored as x̃, each element rounded to a type whose unit roundoff is u: |x̃ᵢ − xᵢ| ≤ u |xᵢ| + η, where η
is half of the smallest number. So, in the norm ‖·‖ (of Manhattan for that distance, otherwise of Euclid),

    ‖x̃ − x‖ ≤ u ‖x‖ + η D,      |s(q, x̃) − s(q, x)| ≤ ‖q‖ ‖x̃ − x‖  for products,  ‖x̃ − x‖  for distances,

and a device's float32 sum of D terms is off by at most γ = D 2⁻²⁴ / (1 − D 2⁻²⁴) of the sum of their sizes (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd edition, equation 3.5). Let E be the sum of both bounds for the
longest x, and of D times the smallest normal number, below which a device may have 0. The C rows with the largest
s(q, x̃) are the candidates, and σ is the smallest of these. Any other row has s(q, x) ≤ σ + E. If the k-th best
candidate's true score is above that, the best k candidates are the best k rows.
"""

import math
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
from jaxtyping import Float, Float32, Int64

from simcse_jax.index.placed import DTYPES, Placed
from simcse_jax.index.top_k import MAX_QUERIES, Block, top_k
from simcse_jax.vectors.quantization import Quantization, Ranges
from simcse_jax.vectors.similarity import PRODUCTS, norm_order, similarities

RESCORE = 4  # candidates per result; docs/background/search.md says how many of the nearest rows this finds
CODES = ("int8", "binary")

Scored = tuple[Float32[np.ndarray, "Q K"], Int64[np.ndarray, "Q K"]]
ReadVectors = Callable[[Int64[np.ndarray, " n"]], Float32[np.ndarray, "n D"]]  # of rows, in ascending order; -1: any
FACTOR, LEAST, MOST = 4, 64, 1024  # candidates of 16 bits: FACTOR · k, at least LEAST, at most MOST if repeated


def quantization_for(precision: str, dimension: int, ranges: Ranges | None) -> Quantization | None:
    """How an index stores vectors in this precision; None for float32."""
    if precision not in CODES:
        return None
    return Quantization("int8", dimension, ranges) if precision == "int8" else Quantization("ubinary", dimension)


def vectors_in(blocks: Sequence[Block], quantization: Quantization | None = None) -> ReadVectors:
    """A function that reads rows of blocks on the host, decoded to float32."""

    def read(rows: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n D"]:
        ends = [block.first + block.count for block in blocks]
        parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
        stored = [np.asarray(block.rows)[part - block.first] for part, block in zip(parts, blocks, strict=True)]
        encoded = np.concatenate(stored)
        return encoded if quantization is None else quantization.decode(encoded)

    return read


def rescored(
    queries: Float[np.ndarray, "Q D"],
    rough: Float32[np.ndarray, "Q C"],
    candidates: Int64[np.ndarray, "Q C"],
    vectors: ReadVectors,
    k: int,
    similarity: str,
) -> Scored:
    """The best k of each query's candidates.

    Args:
      queries: (Q, D), prepared.
      rough: the candidates' scores, of which -inf and NaN are kept.

    Returns:
      Scores (Q, k), computed in float64 and rounded to float32, and rows. Of equal scores the lower row comes first.
    """
    # Some queries at a time, to limit the vectors in memory.
    parts = [slice(start, start + MAX_QUERIES) for start in range(0, len(queries), MAX_QUERIES)]
    exact = np.concatenate([_scores(queries[at], candidates[at], rough[at], vectors, similarity) for at in parts])
    descending = np.where(np.isnan(exact), -np.inf, -exact).astype(np.float32)  # NaN comes first
    order = np.lexsort((candidates, descending))[:, :k]  # by score, then by row
    scores = np.take_along_axis(exact, order, axis=1).astype(np.float32)
    return scores, np.take_along_axis(candidates, order, axis=1)


def _scores(
    queries: Float[np.ndarray, "Q D"],
    candidates: Int64[np.ndarray, "Q C"],
    rough: Float32[np.ndarray, "Q C"],
    vectors: ReadVectors,
    similarity: str,
) -> Float[np.ndarray, "Q C"]:
    """The true scores of each query's candidates, in float64; -inf and NaN in `rough` are kept."""
    wanted, places = np.unique(candidates, return_inverse=True)
    rows = vectors(wanted)
    name = "dot" if similarity == "cosine" else similarity  # both have unit length already
    exact = np.empty(candidates.shape)
    for query, (row, query_scores) in enumerate(zip(places.reshape(candidates.shape), exact, strict=True)):
        query_scores[:] = similarities(queries[None, query].astype(np.float64), rows[row].astype(np.float64), name)[0]
    return np.where(np.isfinite(rough), exact, rough)


def refined_top_k(
    queries: Float[np.ndarray, "Q D"],
    blocks: Sequence[Block],
    k: int,
    placed: Placed,
    recall_target: float | None = None,
    similarity: str = "dot",
) -> Scored:
    """As `top_k`, and as exact, with 16-bit vectors on the devices.

    A query whose candidates are not proven to include the best rows is repeated with eight times as many, up to `MOST`.
    After that, all rows are compared in float32, sent to the devices block by block.

    Args:
      queries, k, recall_target, similarity: see `top_k`; with a `recall_target` the candidates are approximate, and no
        query is repeated.
      blocks: all rows in float32, on the host.
      placed: the same in 16 bits, on devices.

    Returns:
      As `top_k`; scores are computed in float64 and rounded to float32.
    """
    scores = np.full((len(queries), k), -np.inf, np.float32)
    rows = np.zeros((len(queries), k), np.int64)
    unproven, count = np.arange(len(queries)), max(FACTOR * k, LEAST)
    errors = bounds(queries, placed.longest(blocks, similarity), placed.storage, similarity)
    while len(unproven) and count <= max(FACTOR * k, MOST):
        asked = queries[unproven]
        rough, candidates = top_k(asked, placed.blocks(blocks), count, placed.mesh, recall_target, similarity)
        exact, rows[unproven] = rescored(asked, rough, candidates, vectors_in(blocks), k, similarity)
        scores[unproven] = exact
        proven = exact[:, -1] > rough[:, -1] + errors[unproven]
        # With fewer rows than candidates, all rows are candidates. The caller reports NaN.
        proven |= np.isneginf(rough[:, -1]) | ~(rough < np.inf).all(axis=1)
        unproven = unproven[~proven] if recall_target is None else unproven[:0]
        count *= 8
    if len(unproven):
        scores[unproven], rows[unproven] = top_k(queries[unproven], blocks, k, placed.mesh, None, similarity)
    return scores, rows


def bounds(queries: Float[np.ndarray, "Q D"], longest: float, storage: str, similarity: str) -> Float[np.ndarray, " Q"]:
    """E of each query: the maximum error of a score in `storage` on a device."""
    dimension, info = queries.shape[1], ml_dtypes.finfo(DTYPES[storage])
    lengths = np.linalg.norm(queries.astype(np.float64), norm_order(similarity), axis=1)
    unit, tiny = float(info.eps) / 2, float(info.smallest_subnormal) / 2
    gamma = (dimension + 4) * 2.0**-23  # twice the bound, with some more for squares, differences and a root
    rounding = unit * longest + tiny * dimension
    least = dimension * float(np.finfo(np.float32).tiny)  # devices may flush products below the smallest number to 0
    if similarity in PRODUCTS:
        return lengths * (rounding + gamma * (longest + rounding)) + least
    return rounding + gamma * (lengths + longest + rounding) + math.sqrt(least)  # the root of a sum of squares
