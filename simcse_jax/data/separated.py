"""Tables of text: commas, tabs, semicolons or bars between the fields, with quotation marks around some or none.

A .csv has commas and a .tsv tabs, unless its header says otherwise: European spreadsheets write semicolons into a .csv.
Tables with tabs exist in two kinds. In those of SentEval and GLUE a quotation mark is an ordinary character; pandas and
`datasets` put fields with such a mark into quotation marks and double those inside. The content says which it is.
"""

import csv
import functools
import itertools
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simcse_jax.data.lines import START, Lines, Place, size_and_time
from simcse_jax.data.rows import Row, Table, is_number
from simcse_jax.errors import UserError

SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
LONGEST_FIELD = 1 << 24  # characters; without a limit, a missing quotation mark would read all the rest into memory
LONGEST_RECORD = 100  # lines of a record with breaks inside quotation marks, by which a file is known to have such
csv.field_size_limit(LONGEST_FIELD)


class Dialect(NamedTuple):
    """How the fields of a table are told apart."""

    separator: str
    quoted: bool  # whether quotation marks may enclose a field
    stated: bool = False  # whether a first line `sep=;`, as Excel has it, says the separator


def dialect_of(path: Path) -> Dialect:
    """The dialect of a .csv or .tsv file. A warning names a separator that its name does not say.

    Raises:
      UserError: when the file cannot be read.
    """
    return _dialect(path, "\t" if path.suffix.lower() == ".tsv" else ",", size_and_time(path))


def is_as_named(path: Path) -> bool:
    """Whether a table is what the end of its name says: commas in a .csv, tabs without quotation marks in a .tsv.

    Raises:
      UserError: when the file cannot be read.
    """
    return dialect_of(path) == (Dialect("\t", False) if path.suffix.lower() == ".tsv" else Dialect(",", True))


@functools.lru_cache(1024)  # blocks of a file are opened one by one
def _dialect(path: Path, usual: str, seen: tuple[int, float]) -> Dialect:
    lines = iter(Lines(path))
    header = next(filter(str.strip, lines), "")
    stated = re.fullmatch(r"\"?sep=(.)\"?", header, re.IGNORECASE)
    separator = stated[1] if stated else usual
    if stated:
        header = next(filter(str.strip, lines), "")
    elif _width(header, usual) == 1:
        separator = max((usual, *SEPARATORS), key=lambda each: _width(header, each))
    if separator != usual:
        name = SEPARATORS.get(separator, repr(separator))
        warnings.warn(f"{path}: read with {name} between its fields, as in its first line", stacklevel=2)
    quoted = separator != "\t" or _is_quoted(header, lines, _width(header, "\t"))
    return Dialect(separator, quoted, bool(stated))


def _width(header: str, separator: str) -> int:
    try:
        return len(next(csv.reader([header], delimiter=separator), ()))
    except csv.Error:  # reading says why
        return 1


def _is_quoted(first: str, lines: Iterator[str], width: int | None) -> bool:
    """Whether tab-separated lines are of the kind with quotation marks around fields: the first sign decides.

    Args:
      first, lines: the lines.
      width: the number of columns; None if lines may differ in it.
    """
    every, some = True, False  # so far every field of text is in quotation marks, and there is one
    if all(map(_is_enclosed, first.split("\t"))):
        return True
    for line in lines:
        if '"' not in line:
            every = every and all(not field or is_number(field) for field in line.split("\t"))
            continue
        fields = line.split("\t")
        if line.count('"') % 2 or (width and len(fields) != width):
            return _has_breaks(line, lines, width)
        for field in fields:
            if '"' in field[1:-1] or (field.count('"') and not _is_enclosed(field)):
                return _is_enclosed(field) and '"' not in field[1:-1].replace('""', "")
        every, some = every and all(not each or is_number(each) or _is_enclosed(each) for each in fields), True
    return every and some


def _is_enclosed(field: str) -> bool:
    return len(field) > 1 and field[0] == field[-1] == '"'


def _has_breaks(line: str, lines: Iterator[str], width: int | None) -> bool:
    """Whether a line begins a record that is whole only if quotation marks enclose tabs or line breaks."""
    reader = csv.reader((each + "\n" for each in itertools.chain([line], lines)), delimiter="\t", strict=True)
    try:
        record = next(reader)
    except csv.Error:
        return False
    is_one = reader.line_num == 1 and len(record) == len(line.split("\t"))
    return not is_one and width in (None, len(record)) and reader.line_num <= LONGEST_RECORD


def _records(path: Path, lines: Lines, dialect: Dialect) -> Iterator[list[str]]:
    if not dialect.quoted:
        yield from (line.split(dialect.separator) for line in lines)
        return
    try:
        yield from csv.reader((line + "\n" for line in lines), strict=True, delimiter=dialect.separator)
    except csv.Error as error:
        what = f"{error}; is a quotation mark missing, or should one be doubled?"
        if "new-line character" in str(error):
            what = "a field has a carriage return in it; put the field in quotation marks, or remove the character"
        raise UserError(f"{path}: line {lines.place.line}: {what}") from None


def read_separated(path: Path, start: Place = START) -> Table:
    """The names of the columns of a .csv or .tsv file, and its rows from a place on.

    Raises:
      UserError: when it is empty; while rows are read, naming the line that is damaged.
    """
    lines, dialect = Lines(path), dialect_of(path)
    records = _records(path, lines, dialect)
    named = (fields for fields in records if any(map(str.strip, fields)))
    names = [name.strip() for name in next(itertools.islice(named, int(dialect.stated), None), ())]
    if not names:
        raise UserError(f"{path}: empty; its first line must name the columns, e.g. sent0,sent1,hard_neg")
    if start.byte:
        lines = Lines(path, start)
        records = _records(path, lines, dialect)

    def rows() -> Iterator[Row]:
        for fields in records:
            where = f"{path}: line {lines.place.line}"
            if not fields or not any(field.strip() for field in fields):
                fields = [""] * len(names)
            if not any(map(str.strip, fields[len(names) :])):  # spreadsheets write empty ones at the end
                fields = fields[: len(names)]
            if len(fields) != len(names):
                raise UserError(
                    f"{where}: {len(fields)} columns, but the first line has {len(names)}; quote or correct it"
                )
            yield Row(where, fields, lines.place)

    return names, rows()


def read_tabs(path: Path) -> Iterator[Row]:
    """The lines of a file with tabs between its fields, whatever its name; the first one too, and blank ones.

    Raises:
      UserError: naming the line that is damaged.
    """
    lines = Lines(path)
    for fields in _records(path, lines, _dialect_of_tabs(path, size_and_time(path))):
        yield Row(f"{path}: line {lines.place.line}", fields if any(map(str.strip, fields)) else [""])


@functools.lru_cache(1024)
def _dialect_of_tabs(path: Path, seen: tuple[int, float]) -> Dialect:
    lines = iter(Lines(path))
    first = next(lines, "")
    return Dialect("\t", _is_quoted(first, itertools.chain([first], lines), None))
