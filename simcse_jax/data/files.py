"""Reads rows from .txt, .csv, .tsv, .jsonl and .parquet files. `READERS` has a function for each."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, reason
from simcse_jax.storage import is_remote

PARQUET_ROWS = 8192  # read at once

NOT_TEXT = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"PAR1": "parquet"}
NOT_TEXT |= {b"\x28\xb5\x2f\xfd": "zstandard", b"%PDF-": "PDF", b"\x93NUMPY": "NumPy"}
MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}

MISSING = object()  # a field that a row does not have


class Row(NamedTuple):
    """The fields of one row, and its place, for messages."""

    where: str
    fields: Sequence[object]


Table = tuple[list[str], Iterator[Row]]  # the names of the columns, and the rows


def open_text(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file (a byte-order mark is dropped), without line ends.

    Raises:
      UserError: when the file is missing, unreadable, no text or, naming the line, not UTF-8.
    """
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1 or b"\0" in line:
                    _check_text(path, number, line)
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        bad = f"byte 0x{error.object[error.start]:02x}"
        raise UserError(
            f"{path}: line {number} is not UTF-8 ({bad}); convert the file, e.g. `iconv -f LATIN1 -t UTF-8`"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _check_text(path: Path, number: int, line: bytes) -> None:
    """Refuses what is no UTF-8 for sure: other encodings, which may have no mark, and files that are not text."""
    if number == 1 and (kind := next((kind for start, kind in NOT_TEXT.items() if line.startswith(start)), None)):
        raise UserError(f"{path}: is a {kind} file, not text; unpack or convert it")
    if number == 1 and (mark := next((name for mark, name in MARKS.items() if line.startswith(mark)), None)):
        raise UserError(f"{path}: is {mark}, not UTF-8; convert the file, e.g. `iconv -f {mark} -t UTF-8`")
    if number == 1 and b"\r" in line.rstrip(b"\r") and not line.endswith(b"\n"):
        raise UserError(f"{path}: its lines end in CR alone; convert them, e.g. `tr '\\r' '\\n'`")
    if b"\0" in line:
        share = line.count(b"\0") / len(line)  # of Latin text in UTF-16 it is half, in UTF-32 three quarters
        like = "UTF-32" if share > 0.6 else "UTF-16" if share > 0.3 else "a binary file"
        raise UserError(f"{path}: line {number} has a zero byte, so it is not UTF-8 text; it looks like {like}")


def _read_lines(path: Path) -> Table:
    return ["sentence"], (Row(f"{path}: line {number}", [line]) for number, line in enumerate(open_text(path), 1))


def _read_separated(path: Path, **dialect: Any) -> Table:
    reader = csv.reader((line + "\n" for line in open_text(path)), strict=True, **dialect)

    def records() -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as error:
            quote = "; is a quotation mark missing, or should one be doubled?" if path.suffix.lower() == ".csv" else ""
            raise UserError(f"{path}: line {reader.line_num}: {error}{quote}") from None

    iterator = records()
    names = next((fields for fields in iterator if any(field.strip() for field in fields)), None)
    if not names:
        raise UserError(f"{path}: empty; its first line must name the columns, e.g. sent0,sent1,hard_neg")

    def rows() -> Iterator[Row]:
        for fields in iterator:
            where = f"{path}: line {reader.line_num}"
            if not fields or not any(field.strip() for field in fields):
                fields = [""] * len(names)
            if len(fields) != len(names):
                raise UserError(
                    f"{where}: {len(fields)} columns, but the first line has {len(names)}; quote or correct it"
                )
            yield Row(where, fields)

    return names, rows()


def _read_csv(path: Path) -> Table:
    return _read_separated(path)


def _read_tsv(path: Path) -> Table:
    # As in SentEval's and STS's files: a quotation mark is an ordinary character.
    return _read_separated(path, delimiter="\t", quoting=csv.QUOTE_NONE)


def _read_jsonl(path: Path) -> Table:
    def records() -> Iterator[tuple[int, dict]]:
        for number, line in enumerate(open_text(path), 1):
            if not line.strip():
                yield number, {}
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}: line {number}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise UserError(f"{path}: line {number}: not a JSON object")
            yield number, record

    names = next((list(record) for _, record in records() if record), None)
    if names is None:
        raise UserError(f"{path}: holds no sentences")
    for name in names:
        if not is_text(name):
            raise UserError(f"{path}: the field {name!r} has half a surrogate pair, which is not a character")

    def rows() -> Iterator[Row]:
        for number, record in records():
            absent = MISSING if record else None  # no record: a blank line
            yield Row(f"{path}: line {number}", [record.get(name, absent) for name in names])

    return names, rows()


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Table:
    """The names of all columns, and the rows of the wanted ones (None: all), a few thousand read at a time.

    Other columns are not read, so that nothing in them can be wrong. The wanted ones come in the order that is asked.

    Raises:
      UserError: when it is not a parquet file; while reading rows, when it is damaged.
    """
    import pyarrow
    import pyarrow.parquet

    # Its errors, text that is not UTF-8 and times out of range are these.
    errors = (OSError, ValueError, OverflowError, pyarrow.ArrowException)
    try:
        file = pyarrow.parquet.ParquetFile(path.open("rb") if is_remote(path) else path)
        names = file.schema_arrow.names
    except errors as error:
        raise UserError(f"{path}: not a readable parquet file: {reason(error)}") from None
    if not names:
        raise UserError(f"{path}: has no columns")

    def rows() -> Iterator[Row]:
        number = 0
        try:
            for batch in file.iter_batches(PARQUET_ROWS, columns=columns):
                places = [batch.schema.names.index(name) for name in columns or names]
                for fields in zip(*(batch.column(place).to_pylist() for place in places), strict=True):
                    number += 1
                    yield Row(f"{path}: row {number}", fields)
        except errors as error:
            raise UserError(f"{path}: damaged after row {number}: {reason(error)}") from None

    return names, rows()


def is_text(text: str) -> bool:
    """Whether a string can be written: half a surrogate pair is not a character."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


READERS: dict[str, Callable[[Path], Table]] = {
    ".txt": _read_lines,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": read_parquet,
}
