"""The lines of text files, the rows of tables, and the text in their fields."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, broken, not_utf8, system_message
from simcse_jax.host.storage import Folder

NOT_UTF8 = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"PAR1": "parquet", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
MISSING = object()  # a field that a row does not have


class Place(NamedTuple):
    """A position between two lines of a text file."""

    line: int = 0  # lines before it
    byte: int = 0  # bytes before it


START = Place()


def open_text(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file (a byte-order mark is dropped), without line ends."""
    yield from Lines(path)


class Lines:
    """The lines of `open_text` from a place on; `place` is how far they were read."""

    def __init__(self, path: Path, start: Place = START):
        self._path, self.place = path, start

    def __iter__(self) -> Iterator[str]:
        path, (before, byte) = self._path, self.place
        with reported(path), path.open("rb") as file:
            if byte:
                file.seek(byte)
            for number, line in enumerate(file, before + 1):
                if number == 1 or b"\0" in line:
                    _check_text(path, number, line)
                byte += len(line)
                self.place = Place(number, byte)
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise UserError(f"{path}: line {number} {not_utf8(error)}") from None
                yield text.rstrip("\r\n")


@contextlib.contextmanager
def reported(where: object) -> Iterator[None]:
    """Turns what a disk or a store's client raises into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # an OSError, or any error of a store's client or a library of datasets
        raise UserError(f"{where}: cannot be read: {system_message(error)}") from None


def size_and_time(path: Folder) -> tuple[int, float]:
    """A file's size in bytes and when it was last written to, on a disk or in a bucket."""
    with reported(path):
        stat: Any = path.stat()
    return (stat.st_size, stat.st_mtime_ns) if isinstance(path, Path) else (stat.length, stat.mtime)


def _check_text(path: Path, number: int, line: bytes) -> None:
    """Refuses what is clearly not UTF-8 lines."""
    kind = next((kind for start, kind in NOT_UTF8.items() if number == 1 and line.startswith(start)), None)
    if kind:
        raise UserError(f"{path}: is {kind}, not UTF-8 text; unpack or convert it")
    if number == 1 and b"\r" in line.rstrip(b"\r") and not line.endswith(b"\n"):
        raise UserError(f"{path}: its lines end in CR alone; convert them, e.g. `tr '\\r' '\\n'`")
    if b"\0" in line:
        raise UserError(f"{path}: line {number} has a zero byte, so it is not UTF-8 text; is it UTF-16, or binary?")


class Row(NamedTuple):
    """The fields of one row."""

    where: str  # for messages
    fields: Sequence[object]
    end: Place = START  # after the row, in a text file


Table = tuple[list[str], Iterator[Row]]  # the names of the columns, and the rows


def read_text(value: object, where: str) -> str:
    """The sentence in a field, without surrounding white space; "" for None."""
    return as_text(value, where).strip()


def as_text(value: object, where: str) -> str:
    """The text in a field as it is; "" for None."""
    if value is MISSING:
        raise UserError(f"{where} is missing")
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where} holds {value!r:.60}, not text")
    if value and not is_text(value):
        raise UserError(f"{where} {broken(value)}")
    return value or ""


def is_text(text: str) -> bool:
    """Whether a string can be encoded: half a surrogate pair is not a character."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def is_number(text: str) -> bool:
    """Whether a cell is a number (also with a decimal comma), a percentage, a fraction or a boolean."""
    return re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?%?(/\d+)?|true|false", text, re.IGNORECASE) is not None
