"""What gets a run's numbers while it trains, and the names that numbers have there."""

from collections.abc import Mapping
from typing import Any, Protocol

TRAIN, RESULT = "train", "result"  # the groups of a step's metrics, and of the numbers in `result.json`


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


def grouped(values: Mapping[str, Any]) -> dict[str, float]:
    """A line of `metrics.jsonl` as GROUP/NAME: what has no group there is in `train`."""
    return {name if "/" in name else f"{TRAIN}/{name}": value for name, value in numbers_in(values).items()}


def numbers_in(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers in nested groups, by the names of all groups and their own, with slashes in between."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= numbers_in(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            found[prefix + name] = value
    return found
