"""The rows of a table, and the text in their fields."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simcse_jax.data.lines import START, Place
from simcse_jax.errors import UserError, broken

MISSING = object()  # a field that a row does not have


class Row(NamedTuple):
    """The fields of one row, and its place, for messages."""

    where: str
    fields: Sequence[object]
    end: Place = START  # after the row, of a text file
    late: Sequence[str] = ()  # the names of further fields that are not blank, which the first row lacks


Table = tuple[list[str], Iterator[Row]]  # the names of the columns, and the rows


def read_text(value: object, where: str) -> str:
    """The sentence in a field, without surrounding white space; empty for None."""
    if value is MISSING:
        raise UserError(f"{where} is missing")
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where} holds {value!r:.60}, not text; choose text columns with data.columns")
    text = value or ""
    if not is_text(text):
        raise UserError(f"{where} {broken(text)}")
    return text.strip()


def is_text(text: str) -> bool:
    """Whether a string can be written: half a surrogate pair is not a character."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def is_number(text: str) -> bool:
    """Whether a cell is a number, with a decimal comma or not, a percentage, a fraction or a truth value."""
    return re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?%?(/\d+)?|true|false", text, re.IGNORECASE) is not None
