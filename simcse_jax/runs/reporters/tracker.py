"""A run in a tracker of experiments: the same one after each start, and each number once.

The tracker's id of the run, and the last step of each number that is there, are in a small file of the workdir. So a
resumed run skips what is there, and sends what is in `metrics.jsonl` but not there: after a kill or a failure, or where
the tracker was chosen later.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from simcse_jax.errors import UserError, reason
from simcse_jax.host import progress
from simcse_jax.host.storage import Folder, check_lock, read_json, write_atomically
from simcse_jax.runs.metrics_file import add_groups


class StepNumbers(NamedTuple):
    """Numbers of a step."""

    step: int
    seconds: float  # when they were written, since 1970
    values: Mapping[str, float]


class TrackerService(Protocol):
    """A tracker's client, with a run opened in it. Its methods raise whatever that client raises."""

    id: str
    is_new: bool  # whether the tracker has no numbers of the run yet
    first_step: int  # it takes none of the steps below
    keeps: bool  # whether numbers are there as soon as they are sent, or not before `close`

    def send(self, rows: Sequence[StepNumbers]) -> None:
        """Adds numbers, whose steps do not fall."""

    def summarize(self, step: int, result: Mapping[str, float]) -> None:
        """Adds the scores of the run's best checkpoint, that of `step`."""

    def close(self, ended: bool) -> None:
        """Ends the report of a run that has ended, or was stopped."""


class Tracker:
    """Reports to a service. One that fails at the start ends the run; one that fails later does not."""

    def __init__(self, name: str, folder: Folder, open_run: Callable[[str | None], TrackerService]):
        """Opens the run in the tracker."""
        self._name, self._file = name, folder / f"{name}.json"
        run_id, last = self._read()
        try:
            self._service = open_run(run_id)
        except Exception as error:
            cure = f'; run: pip install "simcse_jax[{name}]"' if isinstance(error, ImportError) else ""
            raise UserError(f"config.train.report_to={name}: {reason(error)}{cure}") from None
        self._last = {} if self._service.is_new or self._service.id != run_id else last
        self._rows: list[StepNumbers] = []
        self._result: tuple[int, dict[str, float]] | None = None
        self._failed = self._ended = False
        self._save()

    def replay(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Takes the lines of `metrics.jsonl` so far."""
        for line in lines:
            self.write(line["step"], add_groups({name: value for name, value in line.items() if name != "step"}))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of a step that are not in the tracker yet."""
        new = {name: value for name, value in values.items() if self._last.get(name, -1) < step}
        if new and step >= self._service.first_step:
            self._rows.append(StepNumbers(step, time.time(), new))
            self._last |= dict.fromkeys(new, step)

    def flush(self) -> None:
        """Sends all numbers so far."""
        if not self._failed and (self._rows or self._result):
            with self._warn_on_error("the run goes on, and tries again at its end"):
                self._send()
                if self._service.keeps:
                    self._save()

    def _send(self) -> None:
        self._service.send(self._rows)
        self._rows = []
        if self._result:
            self._service.summarize(*self._result)
            self._result = None

    def finish(self, step: int, result: Mapping[str, float]) -> None:
        """Sends the scores of the best checkpoint."""
        self._ended = True
        if new := {name: value for name, value in result.items() if self._last.get(name) != step}:
            self._result = step, new
            self._last |= dict.fromkeys(new, step)
            self.flush()

    def close(self) -> None:
        """Sends the rest, and ends the report."""
        with self._warn_on_error("the same command sends what is missing"):
            check_lock(self._file)  # another job reports to the same run now
            try:
                self._send()
            finally:
                self._service.close(self._ended)
            self._save()

    @contextlib.contextmanager
    def _warn_on_error(self, then: str) -> Iterator[None]:
        try:
            yield
        except UserError:  # the disk is full, or another job has the workdir
            raise
        except Exception as error:
            self._failed = True
            progress.write(f"warning: {self._name}: {reason(error)}; {then}", sys.stderr)

    def _save(self) -> None:
        write_atomically(self._file, json.dumps({"id": self._service.id, "last": self._last}, indent=2) + "\n")

    def _read(self) -> tuple[str | None, dict[str, int]]:
        if not self._file.is_file():
            return None, {}
        saved = read_json(self._file)
        return saved["id"], saved["last"]
