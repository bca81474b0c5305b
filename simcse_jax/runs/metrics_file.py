"""The metrics of a run: `metrics.jsonl` and TensorBoard."""

import contextlib
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.errors import UserError, why
from simcse_jax.host.storage import Folder, is_remote, parse_json, write_atomically
from simcse_jax.runs.run_files import check_line

if TYPE_CHECKING:
    from simcse_jax.runs.tensorboard import SummaryWriter

WRITE_SECONDS = 5  # between two writes of metrics.jsonl


def read_metrics(folder: Folder) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`, which may have none yet."""
    path = folder / "metrics.jsonl"
    return _whole_lines(path) if path.is_file() else []


class Metrics:
    """Writes metrics to `metrics.jsonl` and TensorBoard; on resume both go back to the resumed step.

    The file is written whole each time, since an object store cannot append: with its first new line, before each
    checkpoint, and in between at most every `WRITE_SECONDS`. A resumed run measures again what a kill has lost.
    """

    def __init__(self, folder: Folder, step: int | None):
        """Opens the files; `step` is the resumed one, None at a run's start."""
        self._path = folder / "metrics.jsonl"
        self._lines = []
        if self._path.exists():
            self._lines = [line for line in _whole_lines(self._path) if step is not None and line["step"] <= step]
        self._tensorboard = folder / "tensorboard"
        self._temporary = tempfile.TemporaryDirectory() if is_remote(folder) else None
        self._purge_step = 0 if step is None else step + 1
        # Made by the first flush with a line, because its import takes tenths of a second.
        self._writer: SummaryWriter | None = None
        self._unshown: list[tuple[float, dict[str, Any]]] = []  # lines that TensorBoard lacks, with their times
        self.flush()

    def write(self, step: int, values: Mapping[str, float | Mapping[str, float]]) -> None:
        """Adds a line."""
        self._lines.append({"step": step, **values})
        self._unshown.append((time.time(), self._lines[-1]))
        if self._writer is None or time.monotonic() > self._written + WRITE_SECONDS:
            with contextlib.suppress(UserError):  # all processes report it before the next checkpoint
                self.flush()

    def flush(self) -> None:
        """Writes all lines to the workdir."""
        self._written = time.monotonic()
        write_atomically(self._path, "".join(json.dumps(line) + "\n" for line in self._lines))
        try:
            self._show()
        except OSError as error:
            raise UserError(f"{self._tensorboard}: cannot be written: {error.strerror}") from None
        self._upload()

    def _upload(self) -> None:
        if self._temporary:
            for file in Path(self._temporary.name).iterdir():
                write_atomically(self._tensorboard / file.name, file.read_bytes())

    def _show(self) -> None:
        """Brings TensorBoard up to date; the names of a group are GROUP/NAME there."""
        if not self._unshown:
            return
        if self._writer is None:
            from simcse_jax.runs.tensorboard import SummaryWriter

            folder = self._temporary.name if self._temporary else str(self._tensorboard)
            self._writer = SummaryWriter(folder, purge_step=self._purge_step, write_to_disk=True)
        for seconds, line in self._unshown:
            step, *values = line.items()
            for name, value in values:
                grouped = isinstance(value, Mapping)
                for title, number in {f"{name}/{x}": value[x] for x in value}.items() if grouped else [(name, value)]:
                    self._writer.add_scalar(title, number, step[1], seconds)
        self._unshown = []
        self._writer.flush()

    def close(self) -> None:
        """Writes the remaining lines."""
        self.flush()
        if self._writer is not None:
            self._writer.close()  # its thread may write until here
            self._upload()
        if self._temporary:
            self._temporary.cleanup()


def _whole_lines(path: Folder) -> list[dict[str, Any]]:
    # A last line without its end was cut off, and is ignored.
    try:
        texts = path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
    except ValueError as error:
        raise UserError(f"{path}: not UTF-8: {error}") from None
    lines = []
    for number, text in enumerate(texts, 1):
        where = f"{path}: line {number}"
        try:
            lines.append(check_line(parse_json(text, where), where))
        except UserError as error:
            cure = "" if "; remove" in str(error) else "; remove that line"
            raise UserError(f"{error}{cure}") from None
    return lines
