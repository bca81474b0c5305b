"""Results of a search in the order of a cross-encoder, which reads each with its query."""

from collections.abc import Callable, Sequence

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.index.index import Result
from simcse_jax.index.options import check_search

CANDIDATES = 100  # of a query, of which the best are kept


def reranked(
    score: Callable[[Sequence[str], Sequence[Sequence[str]]], Sequence[np.ndarray]],
    queries: Sequence[str],
    results: Sequence[Sequence[Result]],
    top_k: int,
    threshold: float | None = None,
) -> list[list[Result]]:
    """The results of each query by a cross-encoder's scores, best first; equal scores keep their order.

    Args:
      score: `CrossEncoder.score_of_each` of one with a single label.
      queries: Q texts.
      results: of each query, more than are kept.
      top_k: at most so many are kept.
      threshold: the smallest score that is kept; None for any.

    Raises:
      UserError: when the results have no texts, as those of an index of embeddings alone, or an argument is wrong.
    """
    if isinstance(queries, str) or len(queries) != len(results):
        raise UserError("reranked takes a list of queries, and as many lists of results as `search` gives for them")
    check_search(top_k, threshold)
    texts = [[result.sentence for result in row] for row in results]
    if any(row and not any(row) for row in texts):
        raise UserError("reranking needs texts, and the index has none; build it of embeddings with sentences")
    reranked_rows = []
    for row, scores in zip(results, score(queries, texts), strict=True):
        scored = [result._replace(score=float(value)) for result, value in zip(row, scores, strict=True)]
        kept = [result for result in scored if threshold is None or result.score >= threshold]
        reranked_rows.append(sorted(kept, key=lambda result: -result.score)[:top_k])
    return reranked_rows
