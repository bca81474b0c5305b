"""Sentences read in a stream, and their embeddings written as far as they are there: what `simcse_jax.encode` needs.

Embeddings lie in OUTPUT.partial until all are there; OUTPUT.state.json tells how many rows of it are safe, and of which
input, model and options they are.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from simcse_jax.data.columns import USUAL_NAMES
from simcse_jax.data.sources import MISSING, READERS
from simcse_jax.errors import UserError, reason
from simcse_jax.models.weight_files import read_json
from simcse_jax.storage import write_atomically

PARQUET_ROWS = 8192  # read and written at once


class SentenceFile:
    """One column of a .txt, .csv, .tsv, .jsonl or .parquet file, never in memory as a whole.

    Row n of the file is sentence n: a blank row is the empty sentence.
    """

    def __init__(self, name: str, column: str | None = None):
        """Looks at the file's kind and columns.

        Args:
          name: the file.
          column: None takes one with a usual name (`sentence`, `text`, `sent0`, `anchor`), or the only one.

        Raises:
          UserError: when there is no such file or column, or nothing says which one to take.
        """
        self.path = Path(name).expanduser()
        self._suffix = self.path.suffix.lower()
        if not self.path.is_file():
            raise UserError(f"{name}: {'a folder' if self.path.is_dir() else 'no such file'}; give a file of sentences")
        if self._suffix not in READERS:
            raise UserError(f"{name}: unknown kind of file {self._suffix!r}; known are {', '.join(READERS)}")
        if not self.path.stat().st_size:
            raise UserError(f"{name}: empty; there is nothing to encode")
        names = (
            _parquet(self.path).schema_arrow.names
            if self._suffix == ".parquet"
            else READERS[self._suffix](self.path)[0]
        )
        self.column = _choose(list(names), column, name)

    def __iter__(self) -> Iterator[str]:
        """The sentences.

        Raises:
          UserError: naming the row that holds no text, or the line that is not UTF-8.
        """
        for where, value in self._parquet_rows() if self._suffix == ".parquet" else self._rows():
            if value is MISSING:
                raise UserError(f"{where}: the field {self.column!r} is missing")
            if value is not None and not isinstance(value, str):
                raise UserError(f"{where}: the field {self.column!r} holds {value!r:.60}, which is no text")
            sentence = value or ""
            if not sentence.isascii() and any("\ud800" <= letter <= "\udfff" for letter in sentence):
                raise UserError(f"{where}: holds half a surrogate pair, which is no character")
            yield sentence

    def scan(self) -> tuple[int, str]:
        """Reads it to its end: the number of rows, and the SHA-256 of the column's name and sentences.

        Raises:
          UserError: as iterating does, and when there is no row.
        """
        digest, count = hashlib.sha256(self.column.encode()), 0
        for sentence in self:
            text = sentence.encode()
            digest.update(len(text).to_bytes(8, "little") + text)
            count += 1
        if not count:
            raise UserError(f"{self.path}: holds no sentences")
        return count, digest.hexdigest()

    def _rows(self) -> Iterator[tuple[str, object]]:
        names, rows = READERS[self._suffix](self.path)
        column = list(names).index(self.column)
        return ((row.where, row.fields[column]) for row in rows)

    def _parquet_rows(self) -> Iterator[tuple[str, object]]:
        import pyarrow

        number = 0
        try:
            for batch in _parquet(self.path).iter_batches(PARQUET_ROWS, columns=[self.column]):
                for value in batch.column(0).to_pylist():
                    number += 1
                    yield f"{self.path}: row {number}", value
        except (OSError, pyarrow.ArrowException) as error:
            raise UserError(f"{self.path}: damaged behind row {number}: {reason(error)}") from None


class PartialEmbeddings:
    """Embeddings (N, D) that are written in order and may be written on after a kill."""

    def __init__(self, output: Path, rows: int, dtype: np.dtype, about: dict[str, Any]):
        """Opens what an earlier call has left, or nothing yet.

        Args:
          output: the file that is to be; a .npy, or a .parquet.
          rows: N.
          dtype: of the file's elements.
          about: what the embeddings depend on; what was left must have the same.

        Raises:
          UserError: when what was left is of another input, model or options.
        """
        self.output, self._rows, self._dtype, self._about = output, rows, np.dtype(dtype), about
        self._partial = output.with_name(output.name + ".partial")
        self._state = output.with_name(output.name + ".state.json")
        self._file: IO[bytes] | None = None
        self.done, self.cut = 0, 0  # rows that are safe, and how many of their sentences were cut
        if not self._state.is_file() or not self._partial.is_file():
            return
        state = read_json(self._state)
        for name, value in about.items():
            if state.get("about", {}).get(name) != value:
                raise UserError(
                    f"{self._partial}: begun with another {name}; give the same one to go on, or remove the file to "
                    f"start anew"
                )
        self.done, self.cut = int(state["done"]), int(state["cut"])

    def append(self, embeddings: np.ndarray, cut: int) -> None:
        """Adds n rows (n, D); they are safe when this returns.

        Raises:
          UserError: when the disk is full.
        """
        with self._writing():
            if self._file is None:
                self._file = self._open(embeddings.shape[1])
            self._file.seek(self._start + self.done * embeddings.shape[1] * self._dtype.itemsize)
            self._file.write(np.ascontiguousarray(embeddings, self._dtype).data)
            self._file.flush()
            os.fsync(self._file.fileno())
        self.done, self.cut = self.done + len(embeddings), self.cut + cut
        write_atomically(
            self._state, json.dumps({"done": self.done, "cut": self.cut, "about": self._about}, indent=2) + "\n"
        )

    def finish(self, sentences: Iterator[str], first_row: int) -> None:
        """Makes the output of all rows, in one piece, and removes what was beside it.

        Args:
          sentences: those of the rows, for a .parquet.
          first_row: the number of the first one in its file, for a .parquet.

        Raises:
          UserError: when it cannot be written.
        """
        if self._file is not None:
            self._file.close()
        with self._writing():
            if self.output.suffix.lower() == ".parquet":
                temporary = self.output.with_name(self.output.name + ".tmp")
                _write_parquet(temporary, np.load(self._partial, mmap_mode="r"), sentences, first_row)
                os.replace(temporary, self.output)
                self._partial.unlink()
            else:
                os.replace(self._partial, self.output)
            self._state.unlink()

    def _open(self, size: int) -> IO[bytes]:
        file = open(self._partial, "r+b" if self.done else "w+b")
        if not self.done:
            header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (self._rows, size)})
        else:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
        self._start = file.tell()
        return file

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.output}: cannot be written: {error.strerror or reason(error)}") from None


def _write_parquet(path: Path, embeddings: np.ndarray, sentences: Iterator[str], first_row: int) -> None:
    """Columns `sentence`, `row` (its number in the input, from 0) and `embedding`."""
    import pyarrow
    import pyarrow.parquet

    rows, size = embeddings.shape
    kind = pyarrow.list_(pyarrow.from_numpy_dtype(embeddings.dtype), size)
    schema = pyarrow.schema([("sentence", pyarrow.string()), ("row", pyarrow.int64()), ("embedding", kind)])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, PARQUET_ROWS):
            part = np.array(embeddings[start : start + PARQUET_ROWS])
            texts = [next(sentences) for _ in part]
            numbers = np.arange(first_row + start, first_row + start + len(part))
            vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(part.ravel()), type=kind)
            writer.write_table(pyarrow.table([pyarrow.array(texts), pyarrow.array(numbers), vectors], schema=schema))


def _parquet(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not a readable parquet file: {reason(error)}") from None


def _choose(names: list[str], column: str | None, where: str) -> str:
    if column is not None:
        if column not in names:
            raise UserError(f"--column {column}: {where} has no such column; it has {', '.join(names)}")
        return column
    usual = next((name for name in ("sentence", "text", *USUAL_NAMES["anchor"]) if name in names), None)
    if usual is None and len(names) != 1:
        raise UserError(f"{where}: which column? It has {', '.join(names)}; name one with --column")
    return usual or names[0]
