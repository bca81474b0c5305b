"""Candidates from small vectors, scored again in float32: of bytes or bits, the nearest rows with few missed.

The queries stay in float32. On devices they are compared with the numbers that the bytes or bits stand for, which finds
better candidates than bits of both sides do; FAISS counts the bits that differ. The candidates' scores are then those
of the rows in float32, where an index keeps them, or else of the numbers that the bytes or bits stand for.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Float32, Int64

from simcse_jax.encoding.quantization import Quantization, Ranges
from simcse_jax.index.decoding import decoding_of
from simcse_jax.index.placed import Placed
from simcse_jax.index.similarity import similarities
from simcse_jax.index.top_k import MAX_QUERIES, Block, top_k

RESCORE = 4  # candidates for each of the k results; docs/use.md says how many of the nearest rows they have
CODES = ("int8", "binary")

Found = tuple[Float32[np.ndarray, "Q K"], Int64[np.ndarray, "Q K"]]
Vectors = Callable[[Int64[np.ndarray, " n"]], Float32[np.ndarray, "n D"]]  # of rows, in ascending order; -1: any


def quantization_for(precision: str, dimension: int, ranges: Ranges | None) -> Quantization | None:
    """How an index stores vectors in float32 or one of `CODES`; None: as they are."""
    if precision not in CODES:
        return None
    return Quantization("int8", dimension, ranges) if precision == "int8" else Quantization("ubinary", dimension)


def rescored_top_k(
    queries: Float[np.ndarray, "Q D"],
    blocks: Sequence[Block],
    k: int,
    placed: Placed,
    rescore: int = RESCORE,
    recall_target: float | None = None,
    similarity: str = "dot",
) -> Found:
    """The best k of `rescore` · k candidates, by their scores in float32.

    Args:
      queries, k, recall_target, similarity: see `top_k`.
      blocks: all rows in float32, on the host.
      placed: where they are in bytes or bits.
      rescore: the number of candidates for each result.

    Returns:
      As `top_k`; scores are computed in float64 and rounded to float32.
    """
    decoding = decoding_of(placed.quantization)
    wanted = 1 << (rescore * k - 1).bit_length()  # so that few values compile
    rough, candidates = top_k(
        queries, placed.blocks(blocks), wanted, placed.mesh, recall_target, similarity, decoding=decoding
    )
    return rescored(queries, rough, candidates, vectors_in(blocks), k, similarity)


def vectors_in(blocks: Sequence[Block], quantization: Quantization | None = None) -> Vectors:
    """A function that reads rows of blocks on the host, as float32.

    Args:
      blocks: all rows.
      quantization: how they are stored; None: in float32.
    """

    def read(rows: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, "n D"]:
        found = None
        for block in blocks:
            mine = slice(*np.searchsorted(rows, [block.first, block.first + block.count]))
            part = np.asarray(block.rows)[rows[mine] - block.first]
            part = part if quantization is None else quantization.decode(part)
            if found is None:
                found = np.zeros((len(rows), part.shape[1]), np.float32)
            found[mine] = part
        assert found is not None  # an index without rows is not searched
        return found

    return read


def rescored(
    queries: Float[np.ndarray, "Q D"],
    rough: Float32[np.ndarray, "Q C"],
    candidates: Int64[np.ndarray, "Q C"],
    vectors: Vectors,
    k: int,
    similarity: str,
) -> Found:
    """The best k of each query's candidates.

    Args:
      queries: (Q, D), prepared.
      rough: the candidates' scores; -inf, or what is no number, stays.
      candidates: their rows.
      vectors: reads them.
      k: how many are wanted.
      similarity: see `top_k`.

    Returns:
      Scores (Q, k), computed in float64 and rounded to float32, of equal ones the lower row first; and rows.
    """
    # Not all at once, or the vectors of all candidates would be in memory.
    parts = [slice(start, start + MAX_QUERIES) for start in range(0, len(queries), MAX_QUERIES)]
    exact = np.concatenate([_scores(queries[at], candidates[at], rough[at], vectors, similarity) for at in parts])
    descending = np.where(np.isnan(exact), -np.inf, -exact).astype(np.float32)  # what is no number comes first
    order = np.lexsort((candidates, descending))[:, :k]  # by score, then by row
    found = np.take_along_axis(exact, order, axis=1).astype(np.float32)
    return found, np.take_along_axis(candidates, order, axis=1)


def _scores(
    queries: Float[np.ndarray, "Q D"],
    candidates: Int64[np.ndarray, "Q C"],
    rough: Float32[np.ndarray, "Q C"],
    vectors: Vectors,
    similarity: str,
) -> Float[np.ndarray, "Q C"]:
    """The true scores of each query's candidates, in float64; -inf, or what is no number, stays."""
    wanted, places = np.unique(candidates, return_inverse=True)
    rows = vectors(wanted)
    name = "dot" if similarity == "cosine" else similarity  # both have unit length already
    exact = np.empty(candidates.shape)
    for query, (own, found) in enumerate(zip(places.reshape(candidates.shape), exact, strict=True)):
        found[:] = similarities(queries[None, query].astype(np.float64), rows[own].astype(np.float64), name)[0]
    return np.where(np.isfinite(rough), exact, rough)
