"""The exact nearest rows by way of vectors of 16 bits: candidates, their scores in float32, and a proof for each query.

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
from collections.abc import Sequence

import ml_dtypes
import numpy as np
from jaxtyping import Float

from simcse_jax.index.placed import DTYPES, Placed
from simcse_jax.index.rescore import Found, rescored, vectors_in
from simcse_jax.index.similarity import PRODUCTS, norm_order
from simcse_jax.index.top_k import Block, top_k

FACTOR, LEAST, MOST = 4, 64, 1024  # candidates: so many times k, at least, and at most when more are tried


def refined_top_k(
    queries: Float[np.ndarray, "Q D"],
    blocks: Sequence[Block],
    k: int,
    placed: Placed,
    recall_target: float | None = None,
    similarity: str = "dot",
) -> Found:
    """As `top_k`, and as exact, with vectors of 16 bits on the devices.

    A query whose candidates do not include the best rows for certain is asked again with eight times as many, up to
    `MOST`; after that all rows are compared in float32, which are sent to the devices block by block.

    Args:
      queries, k, recall_target, similarity: see `top_k`; with a `recall_target` the candidates are approximate, and
        nothing is asked again.
      blocks: all rows in float32, on the host.
      placed: where they are in 16 bits.

    Returns:
      As `top_k`; scores are computed in float64 and rounded to float32.
    """
    scores = np.full((len(queries), k), -np.inf, np.float32)
    rows = np.zeros((len(queries), k), np.int64)
    left, count = np.arange(len(queries)), max(FACTOR * k, LEAST)
    errors = bounds(queries, placed.longest(blocks, similarity), placed.storage, similarity)
    while len(left) and count <= max(FACTOR * k, MOST):
        asked = queries[left]
        rough, candidates = top_k(asked, placed.blocks(blocks), count, placed.mesh, recall_target, similarity)
        exact, rows[left] = rescored(asked, rough, candidates, vectors_in(blocks), k, similarity)
        scores[left] = exact
        proven = exact[:, -1] > rough[:, -1] + errors[left]
        # Fewer rows than candidates: all of them are. A score that is no number is the caller's to report.
        proven |= np.isneginf(rough[:, -1]) | ~(rough < np.inf).all(axis=1)
        left = left[~proven] if recall_target is None else left[:0]
        count *= 8
    if len(left):
        sent = Placed(placed.mesh, keep=False)
        scores[left], rows[left] = top_k(queries[left], sent.blocks(blocks), k, placed.mesh, None, similarity)
    return scores, rows


def bounds(queries: Float[np.ndarray, "Q D"], longest: float, storage: str, similarity: str) -> Float[np.ndarray, " Q"]:
    """E of each query: how far a score in `storage` on a device can be from the true one."""
    dimension, info = queries.shape[1], ml_dtypes.finfo(DTYPES[storage])
    lengths = np.linalg.norm(queries.astype(np.float64), norm_order(similarity), axis=1)
    unit, tiny = float(info.eps) / 2, float(info.smallest_subnormal) / 2
    gamma = (dimension + 4) * 2.0**-23  # twice the bound, with some more for squares, differences and a root
    rounding = unit * longest + tiny * dimension
    least = dimension * float(np.finfo(np.float32).tiny)  # devices take a product below the smallest number for 0
    if similarity in PRODUCTS:
        return lengths * (rounding + gamma * (longest + rounding)) + least
    return rounding + gamma * (lengths + longest + rounding) + math.sqrt(least)  # the root of a sum of squares
