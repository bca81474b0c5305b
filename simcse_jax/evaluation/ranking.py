"""Measures of a ranking, as trec_eval 9 defines them in m_ndcg_cut.c, m_recip_rank.c, m_map_cut.c and m_recall.c.

For a query, let g_1, g_2, … be the relevance of the documents in their order, 0 for those that nobody judged, R the
number of relevant documents that were judged, and [·] 1 for what is true, otherwise 0. At the cutoff k,

    nDCG@k   = Σ_{i≤k} max(g_i, 0) / log₂(i + 1), divided by the same sum over the best possible order
    MRR@k    = 1 / the smallest i ≤ k with g_i > 0, or 0
    MAP@k    = 1/R Σ_{i≤k} [g_i > 0] (1/i) Σ_{j≤i} [g_j > 0]
    recall@k = 1/R Σ_{i≤k} [g_i > 0]

All four are 0 for a query without a relevant document. MRR@k is trec_eval's `recip_rank` of the first k documents.
"""

import numpy as np
from jaxtyping import Float64, Int64


def measure(
    name: str,
    gains: Int64[np.ndarray, "Q K"],
    ideal: Int64[np.ndarray, "Q J"],
    relevant: Int64[np.ndarray, " Q"],
) -> Float64[np.ndarray, " Q"]:
    """One measure of each query, from 0 to 1.

    Args:
      name: NAME@k, one of `tasks.MEASURES`.
      gains: (Q, K) the relevance of the documents at ranks 1 to K; a K below k is a ranking that ends there.
      ideal: (Q, J) the judged documents' relevance, falling, and then zeros; J is at least k or the most of a query.
      relevant: (Q,) R of the docstring above.
    """
    kind, _, cutoff = name.partition("@")
    gains, ideal = gains[:, : int(cutoff)], ideal[:, : int(cutoff)]
    hits, ranks = (gains > 0).astype(np.float64), np.arange(1, gains.shape[1] + 1)
    if kind == "ndcg":
        best = _discounted(ideal)
        return _discounted(gains) / np.where(best > 0, best, 1)
    if kind == "mrr":
        return (hits / ranks).max(axis=1, initial=0.0)
    if kind == "map":
        return (hits * np.cumsum(hits, axis=1) / ranks).sum(axis=1) / np.maximum(relevant, 1)
    return hits.sum(axis=1) / np.maximum(relevant, 1)


def _discounted(gains: Int64[np.ndarray, "Q _"]) -> Float64[np.ndarray, " Q"]:
    return np.maximum(gains, 0) @ (1 / np.log2(np.arange(2, gains.shape[1] + 2)))
