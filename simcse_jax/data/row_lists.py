"""Rows with several hard negatives or positives: numbered columns NAME_1, NAME_2, …, or lists of any length."""

import ast
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simcse_jax.data.rows import MISSING, Row, read_text
from simcse_jax.errors import UserError

MOST = 1024  # of a row
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


def numbered(names: Sequence[str], name: str, where: str) -> list[str]:
    """The columns NAME_1, NAME_2, … in order; refuses gaps between their numbers."""
    pattern = re.compile(rf"{re.escape(name)}_([1-9][0-9]{{0,3}})")
    numbers = sorted({int(match[1]) for column in names if (match := pattern.fullmatch(column))})
    for place, number in enumerate(numbers, 1):
        if place != number:
            raise UserError(f"{where}: has a column {name}_{number}, but no {name}_{place}; rename the columns")
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
    """A row's hard negatives, none of them blank; from a single column of text, one, which may be blank."""
    fields = [f"{where}: the field {name!r}" for name in names]
    if negatives.numbered:
        written = [None if value is MISSING else value for value in values]
        texts = [read_text(value, field) for value, field in zip(written, fields, strict=True)]
        while texts and not texts[-1]:
            texts.pop()
        if "" in texts:
            hole = texts.index("")
            raise UserError(f"{fields[hole]} is empty, but {names[len(texts) - 1]!r} is not; move the others forward")
        return texts
    (value,), (field,) = values, fields
    if negatives.lists:
        return _of_list(value, field)
    if isinstance(value, list):
        raise UserError(f"{field} is a list, but that of the first row is text; make all of them lists")
    text = read_text(value, field)
    if is_written_list(text):
        raise UserError(
            f"{field} is a list written as text; write one sentence in each of the columns {names[0]}_1, "
            f"{names[0]}_2, …, or lists in a .jsonl or .parquet"
        )
    return [text]


def _of_list(value: object, field: str) -> list[str]:
    if value is None or value is MISSING:
        return []
    if not isinstance(value, list):
        raise UserError(f"{field} is {value!r:.60}, but that of the first row is a list; make all of them lists")
    if len(value) > MOST:
        raise UserError(f"{field} has {len(value):,} sentences; at most {MOST:,}")
    texts = [read_text(item, field) for item in value]
    if "" in texts:
        raise UserError(f"{field} has an empty sentence, number {texts.index('') + 1} of {len(texts)}; leave it out")
    return texts


def is_written_list(text: str) -> bool:
    """Whether a text is a list of strings as JSON or Python writes it."""
    if not (text.startswith("[") and text.endswith("]")):
        return False
    for parse in (json.loads, ast.literal_eval):
        try:
            parsed = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return isinstance(parsed, list) and all(isinstance(item, str) for item in parsed)
    return False


def split_positives(rows: Iterator[Row], names: Sequence[str], place: int, *for_each: int) -> Iterator[Row]:
    """The same rows or, if the first has its positives in a list, a row for each positive of each row.

    A row without positives stays one row, with a blank positive.

    Args:
      place: the column of positives.
      for_each: columns with a list of values, one for each positive: scores, say.
    """
    rows, lists = peek_lists(rows, place)
    for row in rows:
        values, field = row.fields[place], f"{row.where}: the field {names[place]!r}"
        if not lists:
            if isinstance(values, str) and is_written_list(values):
                raise UserError(f"{field} is a list written as text; write lists in a .jsonl or .parquet")
            yield row
            continue
        if values is None or values == []:
            yield row._replace(fields=[None if at == place else value for at, value in enumerate(row.fields)])
            continue
        if values is MISSING:
            raise UserError(f"{field} is missing")
        if not isinstance(values, list):
            raise UserError(f"{field} is {values!r:.60}, but that of the first row is a list; make all of them lists")
        for number, value in enumerate(values):
            fields = list(row.fields)
            fields[place] = value
            for at in for_each:
                fields[at] = _of_positive(row.fields[at], number, len(values), f"{row.where}: the field {names[at]!r}")
            yield row._replace(fields=fields)


def _of_positive(values: object, number: int, count: int, field: str) -> object:
    """The value of a positive in a list of one for each, which may be a single value for a single positive."""
    listed = values if isinstance(values, list) else [values]
    if values is None:
        return None
    if len(listed) != count:
        raise UserError(f"{field} has {len(listed)} values for {count} positives; give a list with one for each")
    return listed[number]
