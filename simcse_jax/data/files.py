"""Reads rows from .txt, .csv, .tsv, .jsonl and .parquet files. `READERS` has a function for each."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, reason

PARQUET_ROWS = 8192  # read at once

MISSING = object()  # a field that a row does not have


class Row(NamedTuple):
    """The fields of one row, and its place, for messages."""

    where: str
    fields: Sequence[object]


Table = tuple[list[str], Iterator[Row]]  # the names of the columns, and the rows


def open_text(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file (a byte-order mark is dropped), without line ends.

    Raises:
      UserError: when the file is missing, unreadable or, naming the line, not UTF-8.
    """
    number = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        bad = f"byte 0x{error.object[error.start]:02x}"
        raise UserError(
            f"{path}: line {number} is not UTF-8 ({bad}); convert the file, e.g. `iconv -f LATIN1 -t UTF-8`"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _read_lines(path: Path) -> Table:
    return ["sentence"], (Row(f"{path}: line {number}", [line]) for number, line in enumerate(open_text(path), 1))


def _read_separated(path: Path, **dialect: Any) -> Table:
    reader = csv.reader((line + "\n" for line in open_text(path)), strict=True, **dialect)

    def records() -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as error:
            raise UserError(f"{path}: line {reader.line_num}: {error}") from None

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

    def rows() -> Iterator[Row]:
        for number, record in records():
            absent = MISSING if record else None  # no record: a blank line
            yield Row(f"{path}: line {number}", [record.get(name, absent) for name in names])

    return names, rows()


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Table:
    """The names of all columns, and the rows of the wanted ones (None: all), a few thousand read at a time.

    Raises:
      UserError: when it is not a parquet file; while reading rows, when it is damaged.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not a readable parquet file: {reason(error)}") from None
    names = file.schema_arrow.names
    if not names:
        raise UserError(f"{path}: has no columns")

    def rows() -> Iterator[Row]:
        number = 0
        try:
            for batch in file.iter_batches(PARQUET_ROWS, columns=columns):
                for fields in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield Row(f"{path}: row {number}", fields)
        except (OSError, pyarrow.ArrowException) as error:
            raise UserError(f"{path}: damaged after row {number}: {reason(error)}") from None

    return names, rows()


READERS: dict[str, Callable[[Path], Table]] = {
    ".txt": _read_lines,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": read_parquet,
}
