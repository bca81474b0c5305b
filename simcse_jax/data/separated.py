"""Text tables: fields separated by commas, tabs, semicolons or bars, quoted or not.

A .csv has commas and a .tsv tabs, unless its header says otherwise: European spreadsheets write semicolons to a .csv.
Tab-separated files come in two kinds. In SentEval's and GLUE's, a quotation mark is an ordinary character; pandas and
`datasets` quote fields with such a mark and double the marks inside. The content decides which kind a file is.

The fields are read by Python's `csv`, since pyarrow takes a mark that is never closed for a field with the rest of the
file, and pandas, with which `datasets` reads, "NA" for nothing.
"""

import csv
import functools
import itertools
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from simcse_jax.data.rows import START, Lines, Place, Row, Table, is_number, reported, size_and_time
from simcse_jax.errors import UserError

SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas"}
LONGEST_FIELD = 1 << 24  # characters; a missing quotation mark must not read the rest of the file into memory
BLOCK = 1 << 20  # bytes searched at once for a quotation mark


class Layout(NamedTuple):
    """How a table is written."""

    separator: str
    quoted: bool  # whether fields may be quoted
    header: tuple[str, ...]  # the names of the columns; "" for those without one
    before: int  # lines with text before the rows: the header, and perhaps Excel's `sep=;`


def read_separated(path: Path, start: Place = START) -> Table:
    """The names of a table's columns, and its rows from a place on; columns without a name are left out.

    Warns about these, and about an unexpected separator.
    """
    layout = _layout(path, size_and_time(path))
    width = len(layout.header)

    def rows() -> Iterator[Row]:
        lines = Lines(path, start)
        before = 0 if start.byte else layout.before
        for fields in _records(path, lines, layout.separator, layout.quoted):
            is_blank = not any(map(str.strip, fields))
            if before:
                before -= not is_blank
                continue
            where = f"{path}: line {lines.place.line}"
            if is_blank:
                fields = [""] * width
            elif not any(map(str.strip, fields[width:])):  # spreadsheets append empty ones
                fields = fields[:width]
            if len(fields) != width:
                cure = "quote or correct it" if layout.quoted else "correct it; quotation marks are characters here"
                raise UserError(f"{where}: {len(fields)} columns, but the first line has {width}; {cure}")
            yield Row(where, list(itertools.compress(fields, layout.header)), lines.place)

    return [name for name in layout.header if name], rows()


def read_tabs(path: Path) -> Iterator[Row]:
    """The rows of a tab-separated file without a header, whatever its suffix; blank lines have one field."""
    lines, quoted = Lines(path), _is_quoted(path, "\t", Lines(path), has_header=False, likely=False)
    for fields in _records(path, lines, "\t", quoted):
        yield Row(f"{path}: line {lines.place.line}", fields if any(map(str.strip, fields)) else [""])


def _records(path: Path, lines: Lines, separator: str, quoted: bool) -> Iterator[list[str]]:
    if not quoted:
        yield from (line.split(separator) for line in lines)
        return
    csv.field_size_limit(max(LONGEST_FIELD, csv.field_size_limit()))
    try:
        yield from csv.reader((line + "\n" for line in lines), strict=True, delimiter=separator)
    except csv.Error as error:
        problem = f"{error}; is a quotation mark missing, or should one be doubled?"
        if "new-line character" in str(error):
            problem = "a field has a carriage return in it; put the field in quotation marks, or remove the character"
        raise UserError(f"{path}: line {lines.place.line}: {problem}") from None


@functools.lru_cache(1024)  # each block of a file is opened separately
def _layout(path: Path, seen: tuple[int, float]) -> Layout:
    separator = usual = "," if path.suffix.lower() == ".csv" else "\t"
    lines = iter(Lines(path))
    first = next(filter(str.strip, lines), "")
    stated = re.fullmatch(r"\"?sep=([^\w\s\"]|\t)\"?", first, re.IGNORECASE)
    if stated:
        separator, first = stated[1], next(filter(str.strip, lines), "")
    elif _width(first, usual) == 1:
        separator = max((usual, *SEPARATORS), key=lambda candidate: _width(first, candidate))
    if separator != usual:
        name = SEPARATORS.get(separator, repr(separator))
        warnings.warn(f"{path}: fields are separated by {name}, going by the header", stacklevel=3)
    below = itertools.chain([first], lines)
    quoted = separator == "," or _is_quoted(path, separator, below, has_header=True, likely=usual == ",")

    records = _records(path, Lines(path), separator, quoted)
    with_text = (fields for fields in records if any(map(str.strip, fields)))
    names = next(itertools.islice(with_text, int(bool(stated)), None), [])
    header = [re.sub(r"\s*[\r\n]+\s*", " ", name.strip()) for name in names]  # of several lines in Excel
    if not any(header):
        raise UserError(f"{path}: empty; its first line must name the columns, e.g. sent0,sent1,hard_neg")
    if not all(header):  # pandas' index, or what spreadsheets append
        places = [str(place) for place, name in enumerate(header, 1) if not name]
        shown = ", ".join(places[:3]) + ", …" * (len(places) > 3)
        text = f"column {shown} has no name and is" if len(places) == 1 else f"columns {shown} have no name and are"
        warnings.warn(f"{path}: {text} not read", stacklevel=3)
    return Layout(separator, quoted, tuple(header), 1 + bool(stated))


def _width(header: str, separator: str) -> int:
    try:
        return len(next(csv.reader([header], delimiter=separator), ()))
    except csv.Error:  # reported when the file is read
        return 1


def _is_quoted(path: Path, separator: str, lines: Iterable[str], *, has_header: bool, likely: bool) -> bool:
    """Whether these lines were written by a program that quotes fields.

    Not if an unquoted field has a mark, if a mark inside a quoted field is not doubled, or if a record's width differs
    from the first. Yes if otherwise some line's width would differ. If both readings fit, look for a sign of quoting: a
    doubled mark, an empty quoted field, quotes around all text, or around exactly the text with a comma or a carriage
    return. Without a sign, a record over several lines counts as several.

    Args:
      likely: the answer without a sign, and for lines that neither reading fits (reading reports them). A header whose
        names are all quoted makes it True.
    """
    with reported(path), path.open("rb") as file:
        if not any(b'"' in block for block in iter(lambda: file.read(BLOCK), b"")):
            return False
    field = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^"{0}]*)){0}|(.+)'.format(re.escape(separator)), re.DOTALL)
    width, is_long, is_proven, has_quoted, has_special = 0, False, False, False, False
    all_text = only_special = True  # all text is quoted; exactly the text with a comma or a carriage return is
    for record in _whole_records(iter(lines), separator):
        if record and width and '"' not in record and not (all_text or only_special):
            continue  # most lines of a large file
        matches = list(field.finditer(record + separator)) if record is not None else []
        if record is None or matches[-1][3]:
            return likely  # a mark is misplaced
        fields = [(match[1] or match[2] or "", match[1] is not None) for match in matches]
        texts = [text for text, _ in fields]
        if not any(texts):
            continue
        if not width and has_header:
            width, likely = len(fields), likely or all(quoted for _, quoted in fields)
            continue
        width = width or len(fields)
        if not _fits(texts, width):
            return likely
        own_lines = record.split("\n")
        is_long = is_long or len(own_lines) > 1
        is_proven = is_proven or not all(_fits(line.split(separator), width) for line in own_lines)
        for text, quoted in fields:
            is_special = "," in text or "\r" in text
            all_text = all_text and (quoted or not text or is_number(text))
            only_special = only_special and (quoted == is_special or "\n" in text)
            is_proven = is_proven or (quoted and (not text or '""' in text))
            has_quoted = has_quoted or quoted
            has_special = has_special or (quoted and is_special and "\n" not in text)
    return is_proven or (all_text and has_quoted) or (only_special and has_special) or (likely and not is_long)


def _whole_records(lines: Iterator[str], separator: str) -> Iterator[str | None]:
    """Lines, joined while a quotation is open; None for a mark that cannot open a field or is never closed."""
    opens = re.compile(rf'(?:.*{re.escape(separator)})?"[^"]*(?:""[^"]*)*')
    for line in lines:
        parts, size, is_open = [line], len(line), line.count('"') % 2
        if is_open and not opens.fullmatch(line):
            yield None
        while is_open and size <= LONGEST_FIELD and (more := next(lines, None)) is not None:
            parts.append(more)
            size, is_open = size + len(more), is_open ^ more.count('"') % 2
        yield None if is_open else "\n".join(parts)


def _fits(texts: list[str], width: int) -> bool:
    return len(texts) >= width and not any(map(str.strip, texts[width:]))
