"""Results of a search in the order of a cross-encoder, which reads each with its query."""

from collections.abc import Sequence

from simcse_jax.encoding.arguments import is_whole
from simcse_jax.encoding.cross_encoder import CrossEncoder
from simcse_jax.errors import UserError
from simcse_jax.index.index import Result

CANDIDATES = 100  # of a query, of which the best are kept


def reranked(
    judge: CrossEncoder,
    queries: Sequence[str],
    results: Sequence[Sequence[Result]],
    top_k: int,
    threshold: float | None = None,
) -> list[list[Result]]:
    """The results of each query by the judge's scores, best first, of equal ones the earlier result.

    Args:
      judge: a cross-encoder with one label.
      queries: Q texts.
      results: of each query, more than are kept.
      top_k: at most so many are kept.
      threshold: the smallest score that is kept; None for any.

    Raises:
      UserError: when the results have no texts, as those of an index of embeddings alone, or an argument is wrong.
    """
    if isinstance(queries, str) or len(queries) != len(results):
        raise UserError("reranked takes a list of queries, and as many lists of results as `search` gives for them")
    if not is_whole(top_k, 1):
        raise UserError(f"top_k {top_k!r:.60}: must be a whole number, 1 or more")
    texts = [[result.sentence for result in own] for own in results]
    if any(own and not any(own) for own in texts):
        raise UserError(f"{judge.name}: reranks texts, and the index has none; build it of embeddings with sentences")
    found = []
    for own, scores in zip(results, judge.score_of_each(queries, texts), strict=True):
        judged = [result._replace(score=float(score)) for result, score in zip(own, scores, strict=True)]
        kept = [result for result in judged if threshold is None or result.score >= threshold]
        found.append(sorted(kept, key=lambda result: -result.score)[:top_k])
    return found
