"""The resumable outputs of `encode` and `mine`: the same command continues after a kill.

Results are in .OUTPUT.partial until complete. .OUTPUT.state.json says how much of that is safe, and what it depends on:
input, models and options. Use these classes with the output's lock (`host.locks`).
"""

import contextlib
import io
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.host.hidden import RANGES, begun
from simcse_jax.host.storage import read_json, replace, replacing_file, write_atomically, writing
from simcse_jax.vectors.parquet import rows_table, schema_of

PAIR_KINDS = (".jsonl", ".parquet")
AT_ONCE = 1 << 13  # rows of a .parquet that are written together


class Resumable:
    """An output in the making."""

    def __init__(self, output: Path, about: Mapping[str, Any]):
        """Nothing is done so far.

        Args:
          about: everything that it depends on, by option name; must be the same as in an earlier call.
        """
        self.output, self._about = output, json.loads(json.dumps(about))
        self._partial, self.state = begun(output)
        self.done = 0  # rows that are safe

    def earlier(self, whole: bool = False) -> dict[str, Any] | None:
        """The state left by an earlier call; None if there is nothing to resume. Refuses other options and inputs.

        `whole`: whether `about` is complete, so that the earlier call must have nothing else.
        """
        if not self.state.is_file() or not self._partial.is_file():
            return None
        state = read_json(self.state)
        before = state.get("about", {})
        for name in {**self._about, **before} if whole else self._about:
            if before.get(name) != self._about.get(name):
                raise UserError(
                    f"{self._partial}: begun with another {name}; give the same one to resume, or remove the file to "
                    "start again"
                )
        return state

    def check_size(self, size: int) -> None:
        """Refuses a partial file that is shorter than its state says, in bytes."""
        if self._partial.stat().st_size < size:
            raise UserError(f"{self._partial}: shorter than {self.state.name} says; remove it to start again")

    def remove(self) -> None:
        """Removes the temporary files."""
        for path in (self.state, self._partial):
            path.unlink(missing_ok=True)

    def _complete(self, write: Callable[[IO[bytes]], None]) -> None:
        """Makes the output whole or not at all, a .parquet by `write`, and removes the temporary files."""
        if self.output.suffix.lower() == ".parquet":
            with replacing_file(self.output) as file:
                write(file)
            self._partial.unlink()
        else:
            replace(self._partial, self.output)
        self.state.unlink()

    def _open(self) -> IO[bytes]:
        file = os.fdopen(os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        if not self.done:
            self.state.unlink(missing_ok=True)  # its file no longer exists
        return file

    def _write(self, file: IO[bytes], place: int, data: bytes | memoryview, **state: Any) -> None:
        """Writes bytes at a place, and then what is done; both are safe when this returns."""
        with writing(self.output):
            file.seek(place)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            write_atomically(self.state, json.dumps(state | {"about": self._about}, indent=2) + "\n")
        except UserError:
            if not self.done:  # nothing could be resumed
                self._partial.unlink(missing_ok=True)
            raise


class PartialEmbeddings(Resumable):
    """Embeddings (N, D) that are written in order, into a .npy or a .parquet."""

    def __init__(self, output: Path, rows: int, dtype: np.dtype, about: Mapping[str, Any]):
        """Looks at the files of an earlier call, if there are any."""
        super().__init__(output, about)
        self._rows, self._dtype = rows, np.dtype(dtype)
        self.cut = 0  # how many sentences of the rows that are safe were cut
        self.quantization: dict[str, Any] | None = None  # `Quantization.content`, if the rows are codes; kept with them
        if state := self.earlier():
            self.done, self.cut, self.quantization = state["done"], state["cut"], state.get("quantization")

    def append(self, embeddings: np.ndarray, cut: int) -> None:
        """Appends n rows (n, D), of which `cut` sentences were cut; they are safe when this returns."""
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(embeddings, self._dtype)
        if not np.isfinite(rows).all():
            raise UserError(f"{self.output}: an embedding has an element beyond {self._dtype}; write float32")
        header, size = io.BytesIO(), rows.shape[1] * self._dtype.itemsize
        fields = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(header, {**fields, "shape": (self._rows, rows.shape[1])})
        with writing(self.output), self._open() as file:
            place, done, cut = header.tell() + self.done * size, self.done + len(rows), self.cut + cut
            if not self.done:
                file.truncate(0)
                file.write(header.getvalue())
            elif file.read(header.tell()) != header.getvalue():
                raise UserError(f"{self._partial}: damaged; remove it to start again")
            else:
                self.check_size(place)
            kept = {} if self.quantization is None else {"quantization": self.quantization}
            self._write(file, place, rows.data, done=done, cut=cut, **kept)
        self.done, self.cut = done, cut

    def finish(self, sentences: Iterator[str], first_row: int, maker: Mapping[str, Any] | None = None) -> None:
        """Makes the complete output, whole or not at all, and removes the temporary files.

        Args:
          sentences: of the rows, for a .parquet. A .npy of codes gets a file next to it with `quantization`.
          first_row: the number of the first row in the input, for a .parquet.
        """
        is_array = self.output.suffix.lower() != ".parquet"
        beside = self.output.with_name(f"{self.output.name}.{RANGES}")
        with writing(self.output), contextlib.ExitStack() as afterwards:
            if is_array and self.quantization is not None:
                ranges = afterwards.enter_context(replacing_file(beside))
                ranges.write(f"{json.dumps(self.quantization)}\n".encode())
                ranges.flush()
                os.fsync(ranges.fileno())  # the disk may be full; then the codes do not get their name
            if is_array:
                beside.unlink(missing_ok=True)  # an earlier output's: a kill never leaves codes with others' ranges
            self._complete(lambda file: self._write_parquet(file, sentences, first_row, maker))

    def _write_parquet(
        self, file: IO[bytes], sentences: Iterator[str], first_row: int, maker: Mapping[str, Any] | None
    ) -> None:
        import pyarrow.parquet

        embeddings = np.load(self._partial, mmap_mode="r")
        schema = schema_of(embeddings.shape[1], embeddings.dtype, maker, quantization=self.quantization)
        with pyarrow.parquet.ParquetWriter(file, schema) as writer:
            for start in range(0, len(embeddings), AT_ONCE):
                part = np.array(embeddings[start : start + AT_ONCE])
                texts = list(itertools.islice(sentences, len(part)))
                if len(texts) < len(part):
                    raise UserError(f"{file.name}: the input changed while it was read; start again")
                writer.write_table(rows_table(schema, texts, first_row + start, part))


class PartialPairs(Resumable):
    """Mined pairs, into a .jsonl or a .parquet; the partial file has them as JSON lines."""

    def __init__(self, output: Path, about: Mapping[str, Any], whole: bool = True):
        """Looks at the files of an earlier call, if there are any.

        Args:
          whole: False for only a check, with the part of `about` that is known before models are loaded.
        """
        super().__init__(output, about)
        self._bytes = 0  # of the records that are safe; `done` counts the rows that they are of
        self.counted: Counter[str] = Counter()  # of the records, by what is counted
        if state := self.earlier(whole):
            self.done, self._bytes, self.counted = state["done"], state["bytes"], Counter(state["counted"])
            self.check_size(self._bytes)

    def append(self, records: Sequence[Mapping[str, Any]], rows: int, counted: Mapping[str, int]) -> None:
        """Appends the records of a block; they are safe when this returns.

        Args:
          records: of the pairs that are kept.
          rows: the number of rows in the block, including those without a record.
          counted: counts for the block, added to those so far.
        """
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        self.counted.update(counted)
        done, size = self.done + rows, self._bytes + len(text)
        with writing(self.output), self._open() as file:  # closing it writes as well
            file.truncate(self._bytes)
            self._write(file, self._bytes, text, done=done, bytes=size, counted=dict(self.counted))
        self.done, self._bytes = done, size

    def finish(self, has_text: bool, judged: bool) -> None:
        """Makes the complete output, whole or not at all, and removes the temporary files."""
        with writing(self.output):
            self._complete(lambda file: self._write_parquet(file, has_text, judged))

    def _write_parquet(self, file: IO[bytes], has_text: bool, judged: bool) -> None:
        import pyarrow
        import pyarrow.parquet

        text, scores = pyarrow.string(), pyarrow.list_(pyarrow.float32())
        fields = [("anchor", text), ("positive", text)]
        fields += [("negative", pyarrow.list_(text))] if has_text else []
        fields += [("row", pyarrow.int64()), ("negative_rows", pyarrow.list_(pyarrow.int64()))]
        fields += [("positive_score", pyarrow.float32()), ("negative_scores", scores)]
        fields += [("positive_judged", pyarrow.float32()), ("negative_judged", scores)] if judged else []
        schema = pyarrow.schema(fields)
        with (
            pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer,
            open(self._partial, encoding="utf-8", newline="\n") as lines,
        ):
            while part := [json.loads(line) for line in itertools.islice(lines, AT_ONCE)]:
                writer.write_table(pyarrow.Table.from_pylist(part, schema))
