"""Sentences for a model: all rows of a file, or a list or table that the caller has."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from simcse_jax.data.columns import choose_column
from simcse_jax.data.files import count_parquet, files_of, read_parquet, reader_of
from simcse_jax.data.rows import START, Place, Row, as_text, is_text, reported, size_and_time
from simcse_jax.errors import UserError, broken
from simcse_jax.host.storage import Folder, as_path


class SentenceFile:
    """One column of a .txt, .csv, .tsv, .jsonl or .parquet file, never held in memory as a whole.

    Row n of the file is sentence n; a blank row is an empty sentence.
    """

    def __init__(self, name: str | Path, column: str | None = None):
        """Checks the file's type and chooses the column.

        Args:
          name: the file, on a disk or in a bucket.
          column: None for one with a usual name (`sentence`, `text`, `sent0`, `anchor`), or the only one.
        """
        self.path: Folder = as_path(str(name))
        self._is_parquet = self.path.suffix.lower() == ".parquet"
        with reported(self.path):
            if not self.path.is_file():
                problem = "a folder" if self.path.is_dir() else "no such file"
                raise UserError(f"{name}: {problem}; give a file of sentences")
        self._reader = reader_of(self.path)
        self._seen = size_and_time(self.path)
        if not self._seen[0]:
            raise UserError(f"{name}: holds no sentences")
        names = self._reader(self.path)[0]
        self.column = choose_column(names, column, str(name))
        self._at = names.index(self.column)

    def __iter__(self) -> Iterator[str]:
        """The sentences; errors as in `read`."""
        return self.read()

    def read(self, first: int = 0, place: Place | None = None) -> Iterator[str]:
        """The sentences from a row on.

        Args:
          first: the row, from 0. A .parquet file is not read before it.
          place: where it begins in other files (see `count`); None to skip the rows before it.
        """
        for row in self._rows(first, place):
            yield as_text(row.fields[self._at], f"{row.where}: the field {self.column!r}")

    def count(self, interval: int) -> tuple[int, list[Place]]:
        """The number of rows, and where rows 0, `interval`, 2 · `interval` … begin; no places for a .parquet file."""
        if self._is_parquet:
            return count_parquet(self.path), []
        rows, places, end = 0, [START], START
        for row in self._rows():
            if rows and rows % interval == 0:
                places.append(end)
            rows, end = rows + 1, row.end
        return rows, places

    def scan(self) -> tuple[int, str]:
        """Reads the whole file: the number of rows, and SHA-256 of the column's name and sentences.

        Refuses a file in which all rows are blank.
        """
        digest, count, blank = hashlib.sha256(self.column.encode()), 0, True
        for sentence in self:
            text = sentence.encode()
            digest.update(len(text).to_bytes(8, "little") + text)
            count += 1
            blank = blank and not sentence.strip()
        if blank:
            raise UserError(f"{self.path}: holds no sentences" + f", only {count} blank rows" * bool(count))
        return count, digest.hexdigest()

    def has_changed(self) -> bool:
        """Whether the file was modified since it was opened."""
        return size_and_time(self.path) != self._seen

    def _rows(self, first: int = 0, place: Place | None = None) -> Iterator[Row]:
        if self._is_parquet:  # do not read its other columns, perhaps vectors
            return read_parquet(self.path, [self.column], first)[1]
        rows = self._reader(self.path, place or START)[1]
        return rows if place else itertools.islice(rows, first, None)


class SentenceFiles:
    """The sentences of all files of a name (`files.files_of`), one after the other."""

    def __init__(self, name: str | Path, column: str | None = None):
        """Checks all files, see `SentenceFile`."""
        self.path = name
        self._files = [SentenceFile(file, column) for file in files_of(str(name))]
        self._rows = [0] * len(self._files)

    def scan(self) -> tuple[int, str]:
        """Reads all files, see `SentenceFile.scan`; the fingerprint of one alone is its own."""
        scanned = [file.scan() for file in self._files]
        self._rows = [rows for rows, _ in scanned]
        digests = [digest for _, digest in scanned]
        return sum(self._rows), digests[0] if not digests[1:] else hashlib.sha256("".join(digests).encode()).hexdigest()

    def read(self, first: int = 0) -> Iterator[str]:
        """The sentences from a row on, after `scan`."""
        for file, rows in zip(self._files, self._rows, strict=True):
            if first < rows:
                yield from file.read(max(first, 0))
            first -= rows

    def has_changed(self) -> bool:
        """Whether a file was modified since it was opened."""
        return any(file.has_changed() for file in self._files)


def read_sentences(file: str | Path, column: str | None = None) -> list[str]:
    """All sentences of a file, a folder or a pattern, see `SentenceFile`; refuses them if all rows are blank."""
    sentences = list(itertools.chain.from_iterable(SentenceFile(name, column) for name in files_of(str(file))))
    if not any(sentence.strip() for sentence in sentences):
        raise UserError(f"{file}: holds no sentences")
    return sentences


def check_sentences(sentences: Iterable[str], kind: str = "sentence") -> list[str]:
    """The sentences as a list.

    Args:
      sentences: any iterable of strings, or a column of a table.
      kind: what errors call a sentence.
    """
    checked = list(one_column(sentences))
    for row, sentence in enumerate(checked):
        if not isinstance(sentence, str):
            raise UserError(f"{kind} {row} is {sentence!r:.60}, not a string")
        if not is_text(sentence):
            raise UserError(f"{kind} {row} {broken(sentence)}")
    return checked


def one_column(data: Any) -> Iterable[Any]:
    """Sentences, unchecked, or anything else that has an order; Arrow's arrays become lists."""
    name = type(data).__name__
    if is_table(data):
        raise UserError(f"a {name}: give one column of sentences, such as table['text']")
    if isinstance(data, AbstractSet):
        raise UserError(f"{data!r:.60}: a {name}, not a list; give its sentences in their order")
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__") or getattr(data, "ndim", 1) == 0:
        raise UserError(f"{data!r:.60}: not a list of strings")
    return data.to_pylist() if hasattr(data, "to_pylist") else data


def is_table(data: Any) -> bool:
    """Whether it has named columns: a frame of pandas or Polars, a table of Arrow or `datasets`, or a dictionary."""
    # Of the class: pandas also offers row and column names as attributes of the object.
    return isinstance(data, Mapping) or any(hasattr(type(data), name) for name in ("column_names", "columns"))
