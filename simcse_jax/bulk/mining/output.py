"""Mined pairs, written as they are made: the same command, given again after a kill, goes on with the next block.

Records are in .OUTPUT.partial, as JSON lines, until they are complete. .OUTPUT.state.json has the rows of the pairs
that are done, the bytes of their records, and all that these depend on.
"""

import contextlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simcse_jax.errors import UserError, why
from simcse_jax.host.hidden import begun
from simcse_jax.host.storage import read_json, replace, replacing_file, write_atomically

KINDS = (".jsonl", ".parquet")
AT_ONCE = 1 << 13  # records of a group of rows in a .parquet


def check_begun(path: Path, about: Mapping[str, Any], all_of_it: bool = False) -> dict[str, Any] | None:
    """Refuses another option than that of the call that began this output.

    Args:
      path: of the output.
      about: as in `Output`, or the part that is known before models and embeddings are there.
      all_of_it: that `about` has everything, so that the earlier call had nothing else.

    Returns:
      The state of the earlier call; None if there is nothing to resume.

    Raises:
      UserError: when an option or input differs, or the files are damaged.
    """
    partial, state_file = begun(path)
    if not state_file.is_file() or not partial.is_file():
        return None
    state = read_json(state_file)
    done, size, counted, before = (state.get(name) for name in ("done", "bytes", "counted", "about"))
    whole = all(type(number) is int and number >= 0 for number in (done, size))
    if not (whole and isinstance(before, dict) and isinstance(counted, dict)):
        raise UserError(f"{state_file}: damaged; remove it to start again")
    now = json.loads(json.dumps(about))
    for name in {**now, **before} if all_of_it else now:
        if before.get(name) != now.get(name):
            raise UserError(
                f"{partial}: begun with another {name}; give the same one to go on, or remove the file to start again"
            )
    if partial.stat().st_size < size:
        raise UserError(f"{partial}: shorter than {state_file.name} says; remove it to start again")
    return state


class Output:
    """The records of all pairs. Use it with the lock of the output (`locks.lock.held_next_to`)."""

    def __init__(self, path: Path, about: Mapping[str, Any]):
        """Opens the files of an earlier call, if there are any.

        Args:
          path: the file to write in the end, a .jsonl or a .parquet.
          about: by the names of options, all that the records depend on; the same as in the earlier call.
        """
        self.path, self._about = path, json.loads(json.dumps(about))
        self._partial, self._state = begun(path)
        self.done = self._bytes = 0  # rows of the pairs, and bytes of their records
        self.counted: Counter[str] = Counter()  # of the records, by what is counted
        if state := check_begun(path, self._about, all_of_it=True):
            self.done, self._bytes, self.counted = state["done"], state["bytes"], Counter(state["counted"])

    def append(self, records: Sequence[Mapping[str, Any]], rows: int, counted: Mapping[str, int]) -> None:
        """Adds the records of a block; they are safe when this returns.

        Args:
          records: of the pairs that are kept.
          rows: of the block, also those that have no record.
          counted: of the block, to be added up.
        """
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        if not self.done:
            self._state.unlink(missing_ok=True)  # its records no longer exist
        with self._writing(), open(os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            file.truncate(self._bytes)
            file.seek(self._bytes)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self.done, self._bytes = self.done + rows, self._bytes + len(text)
        self.counted.update(counted)
        state = {"done": self.done, "bytes": self._bytes, "counted": dict(self.counted), "about": self._about}
        write_atomically(self._state, json.dumps(state, indent=2) + "\n")

    def finish(self, has_text: bool, judged: bool) -> None:
        """Makes the complete output, whole or not at all, and removes the temporary files.

        Args:
          has_text: whether records have the negatives' text.
          judged: whether they have a judge's scores.
        """
        with self._writing():
            if self.path.suffix.lower() == ".parquet":
                with replacing_file(self.path) as file:
                    self._write_parquet(file, has_text, judged)
                self._partial.unlink()
            else:
                replace(self._partial, self.path)
            self._state.unlink()

    def remove(self) -> None:
        """Removes the temporary files, of records that are of no use."""
        for path in (self._state, self._partial):
            path.unlink(missing_ok=True)

    def _write_parquet(self, file: Any, has_text: bool, judged: bool) -> None:
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

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written: {why(error)}") from None
