"""Reads rows from .txt, .csv, .tsv, .jsonl and .parquet files. `READERS` has a function for each."""

import csv
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.data.labels import with_names
from simcse_jax.errors import UserError, reason, why
from simcse_jax.storage import is_remote

PARQUET_ROWS = 8192  # read at once

NOT_TEXT = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"PAR1": "parquet"}
NOT_TEXT |= {b"\x28\xb5\x2f\xfd": "zstandard", b"%PDF-": "PDF", b"\x93NUMPY": "NumPy"}
MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}

MISSING = object()  # a field that a row does not have


class Place(NamedTuple):
    """A place in a text file, between two lines."""

    line: int = 0  # the lines before it
    byte: int = 0  # the bytes before it


START = Place()


class Row(NamedTuple):
    """The fields of one row, and its place, for messages."""

    where: str
    fields: Sequence[object]
    end: Place = START  # after the row, of a text file
    late: Sequence[str] = ()  # the names of further fields that are not blank, which the first row lacks


Table = tuple[list[str], Iterator[Row]]  # the names of the columns, and the rows


def open_text(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file (a byte-order mark is dropped), without line ends.

    Raises:
      UserError: when the file is missing, unreadable, no text or, naming the line, not UTF-8.
    """
    yield from _Lines(path)


class _Lines:
    """The lines of `open_text`, from a place on, and how far they were read."""

    def __init__(self, path: Path, start: Place = START):
        self._path, self.place = path, start

    def __iter__(self) -> Iterator[str]:
        path, (before, byte) = self._path, self.place
        number = before
        try:
            with path.open("rb") as file:
                if byte:
                    file.seek(byte)
                for number, line in enumerate(file, before + 1):
                    if number == 1 or b"\0" in line:
                        _check_text(path, number, line)
                    byte += len(line)
                    self.place = Place(number, byte)
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UserError:
            raise
        except UnicodeDecodeError as error:
            bad = f"byte 0x{error.object[error.start]:02x}"
            raise UserError(
                f"{path}: line {number} is not UTF-8 ({bad}); convert the file, e.g. `iconv -f LATIN1 -t UTF-8`"
            ) from None
        except _errors_of(path, OSError) as error:
            raise UserError(f"{path}: cannot be read: {why(error)}") from None


def _errors_of(path: Path, *local: type[Exception]) -> tuple[type[Exception], ...]:
    """What reading a file may raise: these on a disk, in a bucket any error of the store's client."""
    return (*local, *((Exception,) if is_remote(path) else ()))


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


def _read_lines(path: Path, start: Place = START) -> Table:
    lines = _Lines(path, start)
    return ["sentence"], (Row(f"{path}: line {lines.place.line}", [line], lines.place) for line in lines)


def _read_separated(path: Path, start: Place, **dialect: Any) -> Table:
    def records(lines: _Lines) -> Iterator[list[str]]:
        try:
            yield from csv.reader((line + "\n" for line in lines), strict=True, **dialect)
        except csv.Error as error:
            quote = "; is a quotation mark missing, or should one be doubled?" if path.suffix.lower() == ".csv" else ""
            raise UserError(f"{path}: line {lines.place.line}: {error}{quote}") from None

    lines = _Lines(path)
    iterator = records(lines)
    names = [name.strip() for name in next((fields for fields in iterator if any(map(str.strip, fields))), ())]
    if not names:
        raise UserError(f"{path}: empty; its first line must name the columns, e.g. sent0,sent1,hard_neg")
    if start.byte:
        lines = _Lines(path, start)
        iterator = records(lines)

    def rows() -> Iterator[Row]:
        for fields in iterator:
            where = f"{path}: line {lines.place.line}"
            if not fields or not any(field.strip() for field in fields):
                fields = [""] * len(names)
            if len(fields) != len(names):
                raise UserError(
                    f"{where}: {len(fields)} columns, but the first line has {len(names)}; quote or correct it"
                )
            yield Row(where, fields, lines.place)

    return names, rows()


def _read_csv(path: Path, start: Place = START) -> Table:
    return _read_separated(path, start)


def _read_tsv(path: Path, start: Place = START) -> Table:
    # As in SentEval's and STS's files: a quotation mark is an ordinary character.
    return _read_separated(path, start, delimiter="\t", quoting=csv.QUOTE_NONE)


def stem_of(name: str) -> str:
    """NAME of a numbered column NAME_7; empty for others."""
    stem, _, number = name.rpartition("_")
    return stem if number.isdecimal() else ""


def _read_jsonl(path: Path, start: Place = START) -> Table:
    def records(lines: _Lines) -> Iterator[dict]:
        for line in lines:
            if not line.strip():
                yield {}
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}: line {lines.place.line}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise UserError(f"{path}: line {lines.place.line}: not a JSON object")
            yield record

    names = next((list(record) for record in records(_Lines(path)) if record), None)
    if names is None:
        raise UserError(f"{path}: holds no sentences")
    for name in names:
        if not is_text(name):
            raise UserError(f"{path}: the field {name!r} has half a surrogate pair, which is not a character")

    known, numbered = set(names), {stem for name in names if (stem := stem_of(name))}

    def rows() -> Iterator[Row]:
        lines = _Lines(path, start)
        for record in records(lines):
            absent = MISSING if record else None  # no record: a blank line
            where = f"{path}: line {lines.place.line}"
            late = sorted(name for name in record.keys() - known if record[name] not in (None, "", []))
            for name in late:
                if stem_of(name) in numbered:
                    raise UserError(f"{where}: has the field {name!r}, which the first line lacks; give it there too")
            yield Row(where, [record.get(name, absent) for name in names], lines.place, late)

    return names, rows()


def read_parquet(path: Path, columns: Sequence[str] | None = None, first: int = 0) -> Table:
    """The names of all columns, and the rows of the wanted ones (None: all), a few thousand read at a time.

    Other columns are not read, so that nothing in them can be wrong. The wanted ones come in the order that is asked.

    Args:
      path: the file.
      columns: the wanted ones.
      first: the first row that is read, from 0; groups of rows before it are passed over.

    Raises:
      UserError: when it is not a parquet file; while reading rows, when it is damaged.
    """
    file = _open_parquet(path)
    names = file.schema_arrow.names
    if not names:
        raise UserError(f"{path}: has no columns")
    labels = {name: with_names(each) for name, each in _names_of_labels(file.schema_arrow).items()}

    def rows() -> Iterator[Row]:
        ends = list(itertools.accumulate(file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)))
        groups = [at for at, end in enumerate(ends) if end > first]
        number = ends[groups[0] - 1] if groups and groups[0] else 0
        try:
            for batch in file.iter_batches(PARQUET_ROWS, row_groups=groups, columns=columns):
                left_out = min(max(first - number, 0), len(batch))
                number += left_out
                wanted = batch.slice(left_out)
                places = [wanted.schema.names.index(name) for name in columns or names]
                values = [wanted.column(place).to_pylist() for place in places]
                for column, name in enumerate(columns or names):
                    values[column] = list(map(labels[name], values[column])) if name in labels else values[column]
                for fields in zip(*values, strict=True):
                    number += 1
                    yield Row(f"{path}: row {number}", fields)
        except _parquet_errors(path) as error:
            raise UserError(f"{path}: damaged after row {number}: {reason(error)}") from None

    return names, rows()


def _names_of_labels(schema: Any) -> dict[str, list[str]]:
    """The names that numbers stand for, by column, where Hugging Face's datasets wrote the file."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        labels = {name: each["names"] for name, each in features.items() if each.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):  # it does not say, or says it in another way
        return {}
    are_names = {name: isinstance(each, list) and {type(one) for one in each} == {str} for name, each in labels.items()}
    return {name: labels[name] for name, holds in are_names.items() if holds}


def _open_parquet(path: Path) -> Any:
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path.open("rb") if is_remote(path) else path)
        file.schema_arrow  # noqa: B018 - which reads it
    except _parquet_errors(path) as error:
        raise UserError(f"{path}: not a readable parquet file: {reason(error)}") from None
    return file


def _parquet_errors(path: Path) -> tuple[type[Exception], ...]:
    import pyarrow

    # Of text that is not UTF-8 and times out of range, too.
    return _errors_of(path, OSError, ValueError, OverflowError, pyarrow.ArrowException)


def count_parquet(path: Path) -> int:
    """The rows of a .parquet file, by what it says at its end.

    Raises:
      UserError: when it is not a parquet file.
    """
    return _open_parquet(path).metadata.num_rows


def read_text(value: object, where: str) -> str:
    """The sentence in a field, without surrounding white space; empty for None.

    Raises:
      UserError: naming the field, if it is missing or holds no text.
    """
    if value is MISSING:
        raise UserError(f"{where} is missing")
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where} holds {value!r:.60}, not text; choose text columns with data.columns")
    text = value or ""
    if not is_text(text):
        raise UserError(f"{where} holds half a surrogate pair, which is not a character")
    return text.strip()


def is_text(text: str) -> bool:
    """Whether a string can be written: half a surrogate pair is not a character."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


READERS: dict[str, Callable[..., Table]] = {  # by a path and, for all but the last, a place to start at
    ".txt": _read_lines,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": read_parquet,
}
