"""The embeddings of a file, written as they are made, for `simcse_jax.commands.encode`.

Embeddings are in .OUTPUT.partial until they are complete. .OUTPUT.state.json has the number of rows that are safe, and
the input, model and options that they depend on.
"""

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from simcse_jax.encoding.parquet import rows_table, schema_of
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import RANGES, begun
from simcse_jax.host.storage import read_json, replace, replacing_file, write_atomically, writing

PARQUET_ROWS = 8192  # written at a time


class PartialEmbeddings:
    """Embeddings (N, D) that are written in order; writing can resume after a kill.

    Use it with the lock of the output (`locks.held_next_to`).
    """

    def __init__(self, output: Path, rows: int, dtype: np.dtype, about: dict[str, Any]):
        """Opens the files of an earlier call, if there are any.

        Args:
          about: all that the embeddings depend on; it must be the same as in the earlier call.
        """
        self.output, self._rows, self._dtype, self._about = output, rows, np.dtype(dtype), about
        self._partial, self.state = begun(output)
        self._file: IO[bytes] | None = None
        self.done, self.cut = 0, 0  # rows that are safe, and the number of their sentences that were cut
        self.quantization: dict[str, Any] | None = None  # `Quantization.content`, if the rows are codes; kept with them
        if not self.state.is_file() or not self._partial.is_file():
            return
        state = read_json(self.state)
        before, done, cut, kept = (state.get(name) for name in ("about", "done", "cut", "quantization"))
        whole = all(type(count) is int and 0 <= count <= rows for count in (done, cut))
        if not (isinstance(before, dict) and whole and isinstance(kept, dict | None)):
            raise UserError(f"{self.state}: damaged; remove it to start again")
        if "--compute-dtype" in before:  # of version 0.1.0, where --dtype was the output's
            before |= {"--output-dtype": before.get("--dtype"), "--dtype": before["--compute-dtype"]}
        for name, value in about.items():
            if before.get(name) != value:
                raise UserError(
                    f"{self._partial}: begun with another {name}; give the same one to resume, or remove the file to "
                    f"start again"
                )
        self.done, self.cut, self.quantization = done, cut, kept

    def append(self, embeddings: np.ndarray, cut: int) -> None:
        """Adds n rows (n, D); they are safe when this returns."""
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(embeddings, self._dtype)
        if not np.isfinite(rows).all():
            raise UserError(f"{self.output}: an embedding has an element beyond {self._dtype}; write float32")
        with writing(self.output):
            if self._file is None:
                self._file = self._open(embeddings.shape[1])
            self._file.seek(self._start + self.done * embeddings.shape[1] * self._dtype.itemsize)
            self._file.write(rows.data)
            self._file.flush()
            os.fsync(self._file.fileno())
        self.done, self.cut = self.done + len(embeddings), self.cut + cut
        write_atomically(
            self.state,
            json.dumps({"done": self.done, "cut": self.cut, "about": self._about} | self._kept, indent=2) + "\n",
        )

    def finish(self, sentences: Iterator[str], first_row: int, maker: Mapping[str, Any] | None = None) -> None:
        """Makes the complete output, whole or not at all, and removes the temporary files.

        Args:
          sentences: of the rows, for a .parquet. A .npy of codes gets a file next to it with `quantization`.
          first_row: the number of the first row in the input, for a .parquet.
          maker: the model, for a .parquet; None if it is not to be named.
        """
        if self._file is not None:
            self._file.close()
        with writing(self.output):
            if self.output.suffix.lower() == ".parquet":
                rows = np.load(self._partial, mmap_mode="r")
                schema = schema_of(rows.shape[1], rows.dtype, maker, quantization=self.quantization)
                with replacing_file(self.output) as file:
                    _write_parquet(file, schema, rows, sentences, first_row)
                self._partial.unlink()
            else:
                beside = self.output.with_name(f"{self.output.name}.{RANGES}")
                beside.unlink(missing_ok=True)  # an earlier output's: a kill never leaves codes with others' ranges
                replace(self._partial, self.output)
                if self.quantization is not None:
                    write_atomically(beside, json.dumps(self.quantization) + "\n")
            self.state.unlink()

    @property
    def _kept(self) -> dict[str, Any]:
        return {} if self.quantization is None else {"quantization": self.quantization}

    def _open(self, size: int) -> IO[bytes]:
        file = os.fdopen(os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        if not self.done:
            self.state.unlink(missing_ok=True)  # its file no longer exists
            file.truncate(0)
            header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (self._rows, size)})
        else:
            try:
                np.lib.format.read_magic(file)
                np.lib.format.read_array_header_1_0(file)
            except ValueError:
                raise UserError(f"{self._partial}: damaged; remove it to start again") from None
        self._start = file.tell()
        if self.done and os.fstat(file.fileno()).st_size < self._start + self.done * size * self._dtype.itemsize:
            raise UserError(f"{self._partial}: shorter than {self.state.name} says; remove it to start again")
        return file


def _write_parquet(
    file: IO[bytes], schema: Any, embeddings: np.ndarray, sentences: Iterator[str], first_row: int
) -> None:
    import pyarrow.parquet

    rows = len(embeddings)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for start in range(0, rows, PARQUET_ROWS):
            part = np.array(embeddings[start : start + PARQUET_ROWS])
            texts = list(itertools.islice(sentences, len(part)))
            if len(texts) < len(part):
                raise UserError(f"{file.name}: the input changed while it was read; start again")
            writer.write_table(rows_table(schema, texts, first_row + start, part))
