"""Which of a query's nearest rows are its hard negatives: pure functions of ranks and scores."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from simcse_jax.data.draws import negative_generator

TOP, RANDOM = SAMPLINGS = ("top", "random")


class Choice(NamedTuple):
    """How hard negatives are chosen, as by sentence-transformers' `mine_hard_negatives`."""

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

    places: Int64[np.ndarray, " H"]  # among its candidates, in their order
    left_out: Counter[str]  # candidates that a limit left out, by its name


def default_range_max(num_negatives: int, range_min: int, limited: bool) -> int:
    """The ranks that are looked at if nobody says how many; `limited`: whether scores may leave some out."""
    return range_min + num_negatives * (10 if limited else 1) + 1


def select(
    scores: Float32[np.ndarray, " K"],
    positive: float,
    is_positive: Bool[np.ndarray, " K"],
    choice: Choice,
    row: int,
) -> Selected:
    """The hard negatives among a query's candidates.

    Of those that are no positives, these are left out, one limit after the other:

        s + m > s⁺    s > s⁺ − r |s⁺|    s > max_score    s < min_score

    with m the absolute and r the relative margin. Of the others, the ranks from `range_min` up to, but without,
    `range_max` remain, and of these the first `num_negatives`, or as many at random, drawn by (seed, row).

    Args:
      scores: s of K candidates, which are in the order of their rank; a judge's, if there is one.
      positive: s⁺, the score of the query's positive.
      is_positive: which candidates are positives of the query.
      choice: see `Choice`.
      row: the query's number, for the draws.
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
