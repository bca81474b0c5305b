"""The lines of text files, the rows of tables, and the text in their fields."""

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, broken, not_utf8, system_message
from simcse_jax.host.storage import Folder, is_remote

NOT_TEXT = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"PAR1": "parquet"}
NOT_TEXT |= {b"\x28\xb5\x2f\xfd": "zstandard", b"%PDF-": "PDF", b"\x93NUMPY": "NumPy"}
MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
LOOKED_AT = 1000  # lines beyond ASCII, of a file with one that is not UTF-8
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
            wrong = not_utf8(error, _has_utf8(path))
            raise UserError(f"{path}: line {number} {wrong}") from None
        except errors_of(path, OSError) as error:
            raise UserError(f"{path}: cannot be read: {system_message(error)}") from None


def errors_of(path: Path, *local: type[Exception]) -> tuple[type[Exception], ...]:
    """The errors that reading a file may raise: these on a disk; in a bucket, any of the store's client."""
    return (*local, *((Exception,) if is_remote(path) else ()))


@contextlib.contextmanager
def reported(where: object) -> Iterator[None]:
    """Turns what a disk or a store's client raises into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # an OSError, bad UTF-8, or any error of a store's client
        raise UserError(f"{where}: cannot be read: {system_message(error)}") from None


def size_and_time(path: Folder) -> tuple[int, float]:
    """A file's size in bytes and when it was last written to, on a disk or in a bucket."""
    with reported(path):
        stat: Any = path.stat()
    return (stat.st_size, stat.st_mtime_ns) if isinstance(path, Path) else (stat.length, stat.mtime)


def _check_text(path: Path, number: int, line: bytes) -> None:
    """Refuses what is clearly not UTF-8: other encodings, with or without a mark, and files that are not text."""
    if number == 1 and (kind := next((kind for start, kind in NOT_TEXT.items() if line.startswith(start)), None)):
        raise UserError(f"{path}: is a {kind} file, not text; unpack or convert it")
    if number == 1 and (mark := next((name for mark, name in MARKS.items() if line.startswith(mark)), None)):
        raise UserError(f"{path}: is {mark}, not UTF-8; convert the file, e.g. `iconv -f {mark} -t UTF-8`")
    if number == 1 and b"\r" in line.rstrip(b"\r") and not line.endswith(b"\n"):
        raise UserError(f"{path}: its lines end in CR alone; convert them, e.g. `tr '\\r' '\\n'`")
    if b"\0" in line:
        share = line.count(b"\0") / len(line)  # in Latin text: half in UTF-16, three quarters in UTF-32
        like = "UTF-32" if share > 0.6 else "UTF-16" if share > 0.3 else "a binary file"
        raise UserError(f"{path}: line {number} has a zero byte, so it is not UTF-8 text; it looks like {like}")


def _has_utf8(path: Path) -> bool:
    """Whether more of the lines beyond ASCII are UTF-8 than can be by chance in another encoding."""
    with path.open("rb") as file:
        lines = list(itertools.islice((line for line in file if not line.isascii()), LOOKED_AT))
    return 10 * sum(map(_is_utf8, lines)) > len(lines)


def _is_utf8(line: bytes) -> bool:
    try:
        return bool(line.decode())
    except UnicodeDecodeError:
        return False


class Row(NamedTuple):
    """The fields of one row."""

    where: str  # for messages
    fields: Sequence[object]
    end: Place = START  # after the row, in a text file
    late: Sequence[str] = ()  # the names of further non-blank fields, which the first row lacks


Table = tuple[list[str], Iterator[Row]]  # the names of the columns, and the rows


def read_text(value: object, where: str) -> str:
    """The sentence in a field, without surrounding white space; "" for None."""
    if value is MISSING:
        raise UserError(f"{where} is missing")
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where} holds {value!r:.60}, not text; choose text columns with data.columns")
    text = value or ""
    if not is_text(text):
        raise UserError(f"{where} {broken(text)}")
    return text.strip()


def is_text(text: str) -> bool:
    """Whether a string can be encoded: half a surrogate pair is not a character."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def is_number(text: str) -> bool:
    """Whether a cell is a number (also with a decimal comma), a percentage, a fraction or a boolean."""
    return re.fullmatch(r"[-+]?[\d.,]+(e[-+]?\d+)?%?(/\d+)?|true|false", text, re.IGNORECASE) is not None
