"""The metrics of a run: `metrics.jsonl`, and what reports them elsewhere."""

import contextlib
import json
import math
import time
from collections.abc import Mapping
from typing import Any, Protocol

from simcse_jax.errors import UserError, system_message
from simcse_jax.host.storage import Folder, parse_json, write_atomically
from simcse_jax.runs.run_files import BEST_STEP

TRAIN, RESULT = "train", "result"  # the groups of a step's metrics, and of the numbers in `result.json`
WRITE_SECONDS = 5  # between two writes of metrics.jsonl


class Reporter(Protocol):
    """Gets the numbers of a run. `Metrics` calls it, in the first process alone."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of a step, by their names in groups. It does not raise; `flush` may."""

    def flush(self) -> None:
        """Shows all numbers so far.

        Raises:
          UserError: when they cannot be shown, and the run must end.
        """

    def finish(self, step: int, result: Mapping[str, float]) -> None:
        """The run has ended: takes the scores of its best checkpoint, that of `step`; none where nothing is scored."""

    def close(self) -> None:
        """Ends the report. Without `finish` before it, the run was stopped."""


def read_metrics(folder: Folder) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`, which may have none yet."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return []
    try:
        texts = path.read_text(encoding="utf-8").split("\n")[:-1]  # a last line without its end was cut off
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {system_message(error)}") from None
    lines = [parse_json(text, f"{path}: line {number}") for number, text in enumerate(texts, 1)]
    for number, line in enumerate(lines, 1):
        if type(line.get("step")) is not int or not 0 <= line["step"] < 1 << 53:
            raise UserError(f"{path}: line {number}: has no step; remove that line")
    return lines


class Metrics:
    """Writes metrics to `metrics.jsonl`, which goes back to the resumed step, and gives them to reporters.

    The file is written whole each time, since an object store cannot append: with its first new line, before each
    checkpoint, and in between at most every `WRITE_SECONDS`. A resumed run measures again what a kill has lost.
    """

    def __init__(self, folder: Folder, step: int | None):
        """Opens the file; `step` is the resumed one, None at a run's start."""
        self._path = folder / "metrics.jsonl"
        self.lines = [line for line in read_metrics(folder) if step is not None and line["step"] <= step]
        self._reporters: list[Reporter] = []
        self.flush()
        self._written = -math.inf  # the first new line is written at once

    def add(self, reporter: Reporter) -> None:
        """Adds a reporter, which gets all further lines."""
        self._reporters.append(reporter)

    def write(self, step: int, values: Mapping[str, float | Mapping[str, float]]) -> None:
        """Adds a line."""
        self.lines.append({"step": step, **values})
        for reporter in self._reporters:
            reporter.write(step, add_groups(values))
        if time.monotonic() > self._written + WRITE_SECONDS:
            with contextlib.suppress(UserError):  # all processes report it before the next checkpoint
                self.flush()

    def flush(self) -> None:
        """Writes all lines to the workdir, and to where the reporters show them."""
        self._written = time.monotonic()
        write_atomically(self._path, "".join(json.dumps(line) + "\n" for line in self.lines))
        for reporter in self._reporters:
            reporter.flush()

    def finish(self, result: Mapping[str, Any]) -> None:
        """Gives the contents of `result.json` to the reporters; empty where nothing is scored."""
        last = max((line["step"] for line in self.lines), default=0)
        for reporter in self._reporters:
            reporter.finish(result.get(BEST_STEP, last), flatten_numbers(result, f"{RESULT}/"))

    def close(self) -> None:
        """Writes the remaining lines."""
        with contextlib.ExitStack() as stack:
            for reporter in self._reporters:
                stack.callback(reporter.close)
            self.flush()


def add_groups(values: Mapping[str, Any]) -> dict[str, float]:
    """A line of `metrics.jsonl` as GROUP/NAME: what has no group there is in `train`."""
    return {name if "/" in name else f"{TRAIN}/{name}": value for name, value in flatten_numbers(values).items()}


def flatten_numbers(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers in nested groups, by the names of all groups and their own, with slashes in between."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            numbers |= flatten_numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            numbers[prefix + name] = value
    return numbers
