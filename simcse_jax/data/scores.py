"""Scores of sentence pairs, graded by people or by another model; and of an anchor's positive and hard negatives."""

import decimal
import math
import numbers
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simcse_jax.errors import UserError

LARGEST = 1e30  # score: differences of such scores still fit float32
OF_PAIR = "write a number, or leave it empty for a pair without one"


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


def parse_score(value: object, where: str, cure: str = OF_PAIR) -> float | None:
    """A number or a boolean, perhaps written as text, also with a decimal comma; None for empty text, None or NaN.

    Raises:
      UserError: also for numbers too large to compare, and for a comma that may be one of thousands.
    """
    text = value.strip().lower() if isinstance(value, str) else value
    is_number = isinstance(text, numbers.Real | decimal.Decimal | np.bool_)
    is_empty = not text if isinstance(text, str) else type(text).__name__ in ("NoneType", "NAType")  # pandas.NA
    if is_empty or (is_number and text != text):
        return None
    score = math.nan
    if isinstance(text, str):
        if re.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}", text):
            either = f"{text.replace(',', '')} or {text.replace(',', '.')}"
            raise UserError(f"{where} holds {value!r}, which may mean {either}; write it without a comma")
        text = {"true": "1", "false": "0"}.get(text, re.sub(r"^([-+]?\d*),(\d+)$", r"\1.\2", text))
    of_numbers = isinstance(text, str) and "_" not in text  # Python reads 1_5 as 15
    if of_numbers or is_number:
        try:
            score = float(text)  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            score = math.nan
    if not abs(score) <= LARGEST:
        raise UserError(f"{where} holds {value!r:.60}, which is not a score; {cure}")
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
    places = [where for _, where in columns]
    if len(columns) == 1 and len(listed[0]) not in (count, count - 1):
        raise UserError(
            f"{places[0]} has {len(listed[0])} scores for a positive and {count - 1} hard negatives; give {count}, or "
            f"{count - 1} margins: the positive's score less each negative's"
        )
    for where, values, texts in zip(places, listed, (1, count - 1), strict=False) if columns[1:] else ():
        if len(values) != texts:
            raise UserError(f"{where} has {len(values)} scores for {texts} texts; give one for each")
    numbers = []
    for where, values in zip(places, listed, strict=True):
        for number, value in enumerate(values, 1):
            score = parse_score(value, where, "write a number")
            if score is None:
                raise UserError(f"{where} lacks score {number} of {len(values)}; write a number, or leave the row out")
            numbers.append(score)
    return numbers if len(numbers) == count else [0.0, *(-margin for margin in numbers)]
