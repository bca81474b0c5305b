"""Rows with several hard negatives or positives: numbered columns NAME_1, NAME_2, …, or lists of any length."""

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simcse_jax.data.rows import MISSING, Row, read_text
from simcse_jax.errors import UserError

LOOKED_AT = 1000  # rows searched for a first value, which shows whether the column holds lists


class Negatives(NamedTuple):
    """Which of a source's chosen columns hold hard negatives: from `first` to before `end`."""

    first: int
    end: int
    numbered: bool = False  # NAME_1, NAME_2, …
    lists: bool = False  # a single column of lists

    @property
    def may_differ(self) -> bool:
        """Whether rows may have different numbers of them."""
        return self.numbered or self.lists


def numbered(names: Sequence[str], name: str) -> list[str]:
    """The columns NAME_1, NAME_2, … in order."""
    pattern = re.compile(rf"{re.escape(name)}_([1-9][0-9]{{0,3}})")
    numbers = sorted({int(match[1]) for column in names if (match := pattern.fullmatch(column))})
    return [f"{name}_{number}" for number in numbers]


def peek_lists(rows: Iterator[Row], place: int) -> tuple[Iterator[Row], bool]:
    """The same rows, and whether the first value of the column at `place` is a list."""
    seen: list[Row] = []
    value: object = None
    for row in itertools.islice(rows, LOOKED_AT):
        seen.append(row)
        value = row.fields[place]
        if value is not None and value is not MISSING:
            break
    return itertools.chain(seen, rows), isinstance(value, list)


def read_negatives(negatives: Negatives, names: Sequence[str], values: Sequence[object], where: str) -> list[str]:
    """A row's hard negatives that are not blank; from a single column of text, one, which may be blank."""
    fields = [f"{where}: the field {name!r}" for name in names]
    if not negatives.may_differ:
        check_no_list(values[0], fields[0])
        return [read_text(values[0], fields[0])]
    if negatives.lists:
        values = values[0] if isinstance(values[0], list) else values
        fields *= len(values)
    texts = (read_text(None if value is MISSING else value, field) for value, field in zip(values, fields, strict=True))
    return [text for text in texts if text]


def check_no_list(value: object, field: str) -> None:
    """Refuses a list of strings that is written as text, as pandas and JSON write it."""
    text = value.strip() if isinstance(value, str) else ""
    if not (text.startswith("[") and text.endswith("]")):
        return
    try:
        parsed = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    if isinstance(parsed, list) and all(isinstance(item, str) for item in parsed):
        raise UserError(f"{field} is a list written as text; write lists in a .jsonl or .parquet, or numbered columns")


def split_positives(rows: Iterator[Row], names: Sequence[str], place: int, *for_each: int) -> Iterator[Row]:
    """The same rows or, if the first has its positives in a list, a row for each positive of each row.

    A row without positives stays one row, with a blank positive.

    Args:
      place: the column of positives.
      for_each: columns with a list of values, one for each positive: scores, say.
    """
    rows, lists = peek_lists(rows, place)
    for row in rows:
        values = row.fields[place]
        if not lists:
            check_no_list(values, f"{row.where}: the field {names[place]!r}")
            yield row
            continue
        positives = (values or [None]) if isinstance(values, list) else [values]
        for number, positive in enumerate(positives):
            fields = list(row.fields)
            fields[place] = positive
            for at in for_each if values else ():
                fields[at] = _of_positive(
                    row.fields[at], number, len(positives), f"{row.where}: the field {names[at]!r}"
                )
            yield row._replace(fields=fields)


def _of_positive(values: object, number: int, count: int, field: str) -> object:
    """The value of a positive in a list of one for each, which may be a single value for a single positive."""
    listed = values if isinstance(values, list) else [values]
    if values is None:
        return None
    if len(listed) != count:
        raise UserError(f"{field} has {len(listed)} values for {count} positives; give a list with one for each")
    return listed[number]
