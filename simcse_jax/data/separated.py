"""Text tables: fields separated by commas, tabs, semicolons or bars, quoted or not.

A .csv has commas and a .tsv tabs, unless its header says otherwise: European spreadsheets write semicolons to a .csv.
Tab-separated files come in two kinds. In SentEval's and GLUE's, a quotation mark is an ordinary character; pandas and
`datasets` quote fields with such a mark and double the marks inside. The content decides which kind a file is.
"""

import csv
import dataclasses
import functools
import itertools
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simcse_jax.data.rows import START, Lines, Place, Row, Table, is_number, size_and_time
from simcse_jax.errors import UserError

SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas"}
LONGEST_FIELD = 1 << 24  # characters; a missing quotation mark must not read the rest of the file into memory
BLOCK = 1 << 20  # bytes searched at once for a quotation mark


class Dialect(NamedTuple):
    """How the fields of a table are separated."""

    separator: str
    quoted: bool  # whether fields may be quoted
    stated: bool = False  # whether the first line declares the separator, `sep=;` as in Excel


def read_separated(path: Path, start: Place = START) -> Table:
    """The names of a table's columns, and its rows from a place on; columns without a name are left out.

    Warns about these, and about an unexpected separator.
    """
    usual = "," if path.suffix.lower() == ".csv" else "\t"
    dialect = _dialect(path, usual, size_and_time(path))
    lines = Lines(path)
    records = _records(path, lines, dialect)
    named = (fields for fields in records if any(map(str.strip, fields)))
    first = next(itertools.islice(named, int(dialect.stated), None), ())
    header = [re.sub(r"\s*[\r\n]+\s*", " ", name.strip()) for name in first]  # of several lines in Excel
    names = [name for name in header if name]
    if not names:
        raise UserError(f"{path}: empty; its first line must name the columns, e.g. sent0,sent1,hard_neg")
    _warn_of_unnamed(path, tuple(header), size_and_time(path))
    if start.byte:
        lines = Lines(path, start)
        records = _records(path, lines, dialect)

    def rows() -> Iterator[Row]:
        cure = "quote or correct it" if dialect.quoted else "correct it; quotation marks are ordinary characters here"
        for fields in records:
            where = f"{path}: line {lines.place.line}"
            if not fields or not any(field.strip() for field in fields):
                fields = [""] * len(header)
            if not any(map(str.strip, fields[len(header) :])):  # spreadsheets append empty ones
                fields = fields[: len(header)]
            if len(fields) != len(header):
                raise UserError(f"{where}: {len(fields)} columns, but the first line has {len(header)}; {cure}")
            yield Row(where, list(itertools.compress(fields, header)), lines.place)

    return names, rows()


@functools.lru_cache(1024)  # as `_dialect`
def _warn_of_unnamed(path: Path, header: tuple[str, ...], seen: tuple[int, float]) -> None:
    """Says which columns have no name, such as pandas' index and what spreadsheets append."""
    places = [str(place) for place, name in enumerate(header, 1) if not name]
    if places:
        text = ("column {} has no name and is", "columns {} have no name and are")[len(places) > 1]
        shown = ", ".join(places[:3]) + ", …" * (len(places) > 3)
        warnings.warn(f"{path}: {text.format(shown)} not read", stacklevel=3)


def read_tabs(path: Path) -> Iterator[Row]:
    """The rows of a tab-separated file without a header, whatever its suffix; blank lines have one field."""
    lines, dialect = Lines(path), _dialect(path, "", size_and_time(path))
    for fields in _records(path, lines, dialect):
        yield Row(f"{path}: line {lines.place.line}", fields if any(map(str.strip, fields)) else [""])


def _records(path: Path, lines: Lines, dialect: Dialect) -> Iterator[list[str]]:
    if not dialect.quoted:
        yield from (line.split(dialect.separator) for line in lines)
        return
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))
    try:
        yield from csv.reader((line + "\n" for line in lines), strict=True, delimiter=dialect.separator)
    except csv.Error as error:
        problem = f"{error}; is a quotation mark missing, or should one be doubled?"
        if "new-line character" in str(error):
            problem = "a field has a carriage return in it; put the field in quotation marks, or remove the character"
        raise UserError(f"{path}: line {lines.place.line}: {problem}") from None


@functools.lru_cache(1024)  # each block of a file is opened separately
def _dialect(path: Path, usual: str, seen: tuple[int, float]) -> Dialect:
    """The dialect of a file; `usual` is the separator unless the header has another, "" for tabs without a header."""
    lines = iter(Lines(path))
    first = next(filter(str.strip, lines), "")
    stated = re.fullmatch(r"\"?sep=([^\w\s\"]|\t)\"?", first, re.IGNORECASE) if usual else None
    separator = usual or "\t"
    if stated:
        separator, first = stated[1], next(filter(str.strip, lines), "")
    elif usual and _width(first, usual) == 1:
        separator = max((usual, *SEPARATORS), key=lambda candidate: _width(first, candidate))
    if usual and separator != usual:
        name = SEPARATORS.get(separator, repr(separator))
        warnings.warn(f"{path}: fields are separated by {name}, going by the header", stacklevel=2)
    quoted = separator == "," or (
        _has_mark(path) and _is_quoted(first, lines, separator, has_header=bool(usual), likely=usual == ",")
    )
    return Dialect(separator, quoted, bool(stated))


def _width(header: str, separator: str) -> int:
    try:
        return len(next(csv.reader([header], delimiter=separator), ()))
    except csv.Error:  # reported when the file is read
        return 1


def _has_mark(path: Path) -> bool:
    with path.open("rb") as file:
        return any(b'"' in block for block in iter(lambda: file.read(BLOCK), b""))


def _is_quoted(first: str, lines: Iterator[str], separator: str, *, has_header: bool, likely: bool) -> bool:
    """Whether these lines were written by a program that quotes fields.

    Not if an unquoted field has a mark, if a mark inside a quoted field is not doubled, or if a record's width differs
    from the first. Yes if otherwise some line's width would differ. If both readings fit, look for a sign of quoting: a
    doubled mark, an empty quoted field, quotes around all text, or around exactly the text with a comma or a carriage
    return. Without a sign, a record over several lines counts as several.

    Args:
      first: the header, or the first line.
      likely: the answer without a sign, and for lines that neither reading fits (reading reports them). A header whose
        names are all quoted makes it True.
    """
    evidence, width = _Evidence(), 0
    for record in _whole_records(itertools.chain([first], lines), separator):
        if record and '"' not in record and evidence.ignores_unquoted and record.count(separator) == width - 1:
            continue  # most lines of a large file
        fields = None if record is None else _fields(record, separator)
        if record is None or fields is None:
            return likely
        texts = [text for text, _ in fields]
        if not any(texts):
            continue
        if not width and has_header:
            width, likely = len(fields), likely or all(enclosed for _, enclosed in fields)
            continue
        width = width or len(fields)
        if not _fits(texts, width):
            return likely
        if '"' in record:
            evidence.add_lines(record.split("\n"), separator, width)
        evidence.add_fields(fields)
    return evidence.proves or (likely and not evidence.is_long)


@dataclasses.dataclass
class _Evidence:
    """The evidence of records for quoting."""

    needed: bool = False  # a line of a record has another width by itself
    is_long: bool = False  # a record has several lines
    has_sign: bool = False  # a doubled mark, or an empty quoted field
    all_text: bool = True  # all text is quoted, and numbers may be
    only_special: bool = True  # exactly the texts with a comma or a carriage return are quoted
    is_some: bool = False  # a field is quoted
    has_special: bool = False  # such a text is quoted

    @property
    def ignores_unquoted(self) -> bool:
        """Whether records without a mark change nothing any more."""
        return not (self.all_text or self.only_special)

    @property
    def proves(self) -> bool:
        """Whether the fields must be quoted."""
        pattern = (self.all_text and self.is_some) or (self.only_special and self.has_special)
        return self.needed or self.has_sign or pattern

    def add_lines(self, lines: list[str], separator: str, width: int) -> None:
        """Adds the lines of a record with a mark."""
        self.needed = self.needed or not all(_fits(line.split(separator), width) for line in lines)
        self.is_long = self.is_long or len(lines) > 1

    def add_fields(self, fields: list[tuple[str, bool]]) -> None:
        """Adds the fields of a record, and whether each is quoted."""
        for text, enclosed in fields:
            special = "," in text or "\r" in text
            self.all_text = self.all_text and (enclosed or not text or is_number(text))
            self.only_special = self.only_special and (enclosed == special or "\n" in text)
            if enclosed:
                self.is_some = True
                self.has_sign = self.has_sign or not text or '""' in text
                self.has_special = self.has_special or (special and "\n" not in text)


def _whole_records(lines: Iterator[str], separator: str) -> Iterator[str | None]:
    """Lines, joined while a quotation is open; None for a mark that cannot open a field or is never closed."""
    opens = re.compile(rf'(?:.*{re.escape(separator)})?"[^"]*(?:""[^"]*)*')
    for line in lines:
        parts, size, is_open = [line], len(line), line.count('"') % 2
        if is_open and not opens.fullmatch(line):
            yield None
        while is_open:
            more = next(lines, None)
            if more is None or size > LONGEST_FIELD:
                yield None
                return
            parts.append(more)
            size, is_open = size + len(more), is_open ^ more.count('"') % 2
        yield "\n".join(parts)


def _fields(record: str, separator: str) -> list[tuple[str, bool]] | None:
    """The fields, and whether each is quoted; None if a mark is misplaced."""
    if '"' not in record:
        return [(field, False) for field in record.split(separator)]
    field = _pattern(separator)
    fields, place = [], 0
    while match := field.match(record, place):
        fields.append((match[2], False) if match[1] is None else (match[1], True))
        place = match.end() + 1
        if place > len(record):
            return fields
    return None


@functools.cache
def _pattern(separator: str) -> re.Pattern[str]:
    """Matches a field: quoted, with marks inside doubled, or without marks."""
    mark = re.escape(separator)
    return re.compile(rf'(?:"((?:[^"]|"")*)"|([^"{mark}]*))(?={mark}|\Z)')


def _fits(texts: list[str], width: int) -> bool:
    return len(texts) >= width and not any(map(str.strip, texts[width:]))
