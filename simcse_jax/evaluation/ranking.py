"""Measures of a ranking, as trec_eval 9 defines them in m_ndcg_cut.c, m_recip_rank.c, m_map_cut.c and m_recall.c.

For a query, let g_1, g_2, … be the relevance of the documents in their order, 0 for those that nobody judged, R the
number of relevant documents that were judged, and [·] 1 for what is true, otherwise 0. At the cutoff k,

    nDCG@k   = Σ_{i≤k} max(g_i, 0) / log₂(i + 1), divided by the same sum over the best possible order
    MRR@k    = 1 / the smallest i ≤ k with g_i > 0, or 0
    MAP@k    = 1/R Σ_{i≤k} [g_i > 0] (1/i) Σ_{j≤i} [g_j > 0]
    recall@k = 1/R Σ_{i≤k} [g_i > 0]

All four are 0 for a query without a relevant document. MRR@k is trec_eval's `recip_rank` of the first k documents.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64

Gains = Int64[np.ndarray, "Q _"]  # a row for each query, best document first
Values = Float64[np.ndarray, " Q"]
Measure = Callable[[Gains, Gains, Int64[np.ndarray, " Q"]], Values]


def measure(
    name: str,
    gains: Int64[np.ndarray, "Q K"],
    ideal: Int64[np.ndarray, "Q J"],
    relevant: Int64[np.ndarray, " Q"],
) -> Values:
    """One measure of each query, from 0 to 1.

    Args:
      name: NAME@k, one of `tasks.MEASURES`.
      gains: (Q, K) the relevance of the documents at ranks 1 to K; a K below k is a ranking that ends there.
      ideal: (Q, J) the judged documents' relevance, falling, and then zeros; J is at least k or the most of a query.
      relevant: (Q,) R of the docstring above.
    """
    kind, _, cutoff = name.partition("@")
    return _MEASURES[kind](gains[:, : int(cutoff)], ideal[:, : int(cutoff)], relevant)


def _ndcg(gains: Gains, ideal: Gains, relevant: Int64[np.ndarray, " Q"]) -> Values:
    best = _discounted(ideal)
    return _discounted(gains) / np.where(best > 0, best, 1)


def _discounted(gains: Gains) -> Values:
    return np.maximum(gains, 0) @ (1 / np.log2(np.arange(2, gains.shape[1] + 2)))


def _mrr(gains: Gains, ideal: Gains, relevant: Int64[np.ndarray, " Q"]) -> Values:
    return (_relevant(gains) / _ranks(gains)).max(axis=1, initial=0.0)


def _map(gains: Gains, ideal: Gains, relevant: Int64[np.ndarray, " Q"]) -> Values:
    hits = _relevant(gains)
    return (hits * np.cumsum(hits, axis=1) / _ranks(gains)).sum(axis=1) / np.maximum(relevant, 1)


def _recall(gains: Gains, ideal: Gains, relevant: Int64[np.ndarray, " Q"]) -> Values:
    return _relevant(gains).sum(axis=1) / np.maximum(relevant, 1)


def _relevant(gains: Gains) -> Float64[np.ndarray, "Q _"]:
    return (gains > 0).astype(np.float64)


def _ranks(gains: Gains) -> Int64[np.ndarray, " _"]:
    return np.arange(1, gains.shape[1] + 1)


_MEASURES: dict[str, Measure] = {"ndcg": _ndcg, "mrr": _mrr, "map": _map, "recall": _recall}
