"""Scores of sentence pairs, graded by people or by another model; and of an anchor's positive and hard negatives."""

import contextlib
import decimal
import math
import numbers
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simcse_jax.errors import UserError

LARGEST = 1e30  # score: differences of such scores still fit float32


class Scores(NamedTuple):
    """How a run reads scores: as they are or, with bounds, scaled from `low` … `high` to 0 … 1."""

    needed_by: str  # the field that needs them, for messages
    bounds: tuple[float, float] | None = None
    stated: bool = False  # whether the bounds come from `data.score_range` rather than the objective
    of_candidates: bool = False  # of a row's positive and of each of its hard negatives, rather than of a pair

    def read(self, value: object, where: str) -> float | None:
        """A score as the objectives take it; None for a pair without one."""
        score = parse_score(value, where)
        if score is None or self.bounds is None:
            return score
        low, high = self.bounds
        if not low <= score <= high:
            range_of = f"data.score_range={low:g},{high:g}" if self.stated else f"{low:g} to {high:g}"
            raise UserError(
                f"{where} holds {score:g}, but {self.needed_by} needs scores within {range_of}; correct it, or set "
                "data.score_range to the lowest and the highest score that there may be, e.g. 0,5"
            )
        return (score - low) / (high - low)


def parse_score(value: object, where: str) -> float | None:
    """A number or a boolean, perhaps written as text, also with a decimal comma; None for empty text, None or NaN.

    Raises:
      UserError: also for numbers too large to compare, and for a comma that may be one of thousands.
    """
    score = math.inf
    if isinstance(value, str):
        text = value.strip().lower()
        if not text:
            return None
        if re.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}", text):
            either = f"{text.replace(',', '')} or {text.replace(',', '.')}"
            raise UserError(f"{where} holds {value!r}, which may mean {either}; write it without a comma")
        text = {"true": "1", "false": "0"}.get(text, re.sub(r"^([-+]?\d*),(\d+)$", r"\1.\2", text))
        with contextlib.suppress(ValueError):
            score = math.inf if "_" in text else float(text)  # Python reads 1_5 as 15
    elif isinstance(value, numbers.Real | decimal.Decimal | np.bool_):
        if value != value:
            return None
        with contextlib.suppress(OverflowError):
            score = float(value)
    elif type(value).__name__ in ("NoneType", "NAType"):  # the latter is pandas'
        return None
    if not abs(score) <= LARGEST:
        raise UserError(f"{where} holds {value!r:.60}, which is not a score; write a number")
    return score


def read_candidates(columns: Sequence[tuple[object, str]], count: int) -> list[float]:
    """The scores of a row's positive and of its hard negatives, in this order.

    Margins, the positive's score less that of each negative, are as good: nothing else of the scores is learned.

    Args:
      columns: values, each with where it is. Two are the positive's score and those of the negatives; a single one has
        all of these in a list, or the margins.
      count: the positive and the hard negatives of the row.

    Raises:
      UserError: naming the field with another number of scores, or with something else than a number.
    """
    listed = [value if isinstance(value, list) else [] if value in (None, "") else [value] for value, _ in columns]
    allowed = ((1,), (count - 1,)) if columns[1:] else ((count, count - 1),)
    numbers = []
    for (_, where), values, counts in zip(columns, listed, allowed, strict=True):
        if len(values) not in counts:
            margins = ", or a margin for each negative" if counts[1:] else ""
            raise UserError(f"{where} has {len(values)} scores for {counts[0]} texts; give one for each{margins}")
        for number, value in enumerate(values, 1):
            score = parse_score(value, where)
            if score is None:
                raise UserError(f"{where} lacks score {number} of {len(values)}; write a number, or leave the row out")
            numbers.append(score)
    return numbers if len(numbers) == count else [0.0, *(-margin for margin in numbers)]
