"""Scores of sentence pairs: how similar they are, graded by people or by another model."""

import decimal
import math
import numbers
from collections.abc import Sequence
from typing import NamedTuple

from simcse_jax.errors import UserError

LARGEST = 1e30  # score: differences of such scores still fit float32


class Scores(NamedTuple):
    """How a run reads scores: as they are or, with bounds, scaled from `low` … `high` to 0 … 1."""

    needed_by: str  # the field that needs them, for messages
    bounds: tuple[float, float] | None = None
    stated: bool = False  # whether the bounds come from `data.score_range` rather than the objective

    def read(self, value: object, where: str) -> float | None:
        """A score as the objectives take it; None for a pair without one."""
        score = parse_score(value, where)
        if score is None or self.bounds is None:
            return score
        low, high = self.bounds
        if not low <= score <= high and self.stated:
            raise UserError(
                f"{where} holds {score:g}, which is outside of data.score_range={low:g},{high:g}; correct one of them"
            )
        if not low <= score <= high:
            raise UserError(
                f"{where} holds {score:g}, but {self.needed_by} needs scores from {low:g} to {high:g}; set "
                "data.score_range to the lowest and the highest score that there may be, e.g. 0,5"
            )
        return (score - low) / (high - low)


def parse_score(value: object, where: str) -> float | None:
    """A number, perhaps written as text; None for empty text or None. Refuses numbers too large to compare."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    score = math.nan
    of_numbers = isinstance(value, str) and "_" not in value  # Python reads 1_5 as 15
    if of_numbers or (isinstance(value, numbers.Real | decimal.Decimal) and not isinstance(value, bool)):
        try:
            score = float(value)  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            score = math.nan
    if not abs(score) <= LARGEST:
        raise UserError(
            f"{where} holds {value!r:.60}, which is not a score; write a number, or leave it empty for a pair without "
            "one"
        )
    return score


def read_range(parts: Sequence[str]) -> tuple[float, float] | None:
    """The lowest and the highest score in `data.score_range`; None if empty. A `ValueError` refuses other values."""
    if not parts:
        return None
    low, high = map(float, parts)
    if not -LARGEST <= low < high <= LARGEST:
        raise ValueError(f"{low} and {high} are not bounds")
    return low, high
