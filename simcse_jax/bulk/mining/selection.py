"""Selects a query's hard negatives from its nearest rows: pure functions of ranks and scores."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from simcse_jax.data.draws import negative_generator

TOP, RANDOM = SAMPLINGS = ("top", "random")


class Choice(NamedTuple):
    """How to choose hard negatives, with the options of sentence-transformers' `mine_hard_negatives`."""

    num_negatives: int
    range_min: int
    range_max: int
    max_score: float | None = None
    min_score: float | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    sampling: str = TOP
    seed: int = 0


class Selected(NamedTuple):
    """A query's hard negatives."""

    places: Int64[np.ndarray, " H"]  # indices into its candidates, ascending
    left_out: Counter[str]  # the number of candidates that each limit excluded


def default_range_max(num_negatives: int, range_min: int, limited: bool) -> int:
    """The default number of ranks to consider; `limited`: whether scores may exclude some."""
    return range_min + num_negatives * (10 if limited else 1) + 1


def select(
    scores: Float32[np.ndarray, " K"],
    positive: float,
    is_positive: Bool[np.ndarray, " K"],
    choice: Choice,
    row: int,
) -> Selected:
    """The hard negatives among a query's candidates.

    Positives are excluded, and then, limit by limit, candidates with

        s + m > s⁺    s > s⁺ − r |s⁺|    s > max_score    s < min_score

    with m the absolute and r the relative margin. Of the ranks from `range_min` to before `range_max` of the others,
    the first `num_negatives` are taken, or as many at random, drawn by (seed, row).

    Args:
      scores: s of K candidates in order of rank; the judge's, if there is one.
      positive: s⁺, the score of the query's positive.
      is_positive: which candidates are positives of the query.
      row: the query's number, for random draws.
    """
    kept, left_out = ~is_positive, Counter[str]()
    above: dict[str, np.ndarray] = {}
    threshold = np.float32(positive)
    if choice.absolute_margin is not None:
        above["absolute_margin"] = scores + np.float32(choice.absolute_margin) > threshold
    if choice.relative_margin is not None:
        above["relative_margin"] = scores > threshold - abs(threshold) * np.float32(choice.relative_margin)
    if choice.max_score is not None:
        above["max_score"] = scores > np.float32(choice.max_score)
    if choice.min_score is not None:
        above["min_score"] = scores < np.float32(choice.min_score)
    for name, wrong in above.items():
        if count := int((kept & wrong).sum()):
            left_out[name] = count
        kept &= ~wrong
    places = np.flatnonzero(kept)[: choice.range_max][choice.range_min :]
    if choice.sampling == RANDOM and len(places) > choice.num_negatives:
        places = np.sort(negative_generator(choice.seed, row).choice(places, choice.num_negatives, replace=False))
    return Selected(places[: choice.num_negatives], left_out)
