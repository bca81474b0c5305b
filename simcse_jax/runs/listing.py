"""What a list of runs shows: where each is, its scores, and the fields in which the runs differ."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from simcse_jax.config.fields import flatten, short_names
from simcse_jax.errors import UserError, system_message
from simcse_jax.host.storage import read_json
from simcse_jax.runs.metrics_file import read_metrics
from simcse_jax.runs.run_files import AGAINST_START, BEST_STEP, FREE, read_run

WIDEST = 32  # characters of a value
NONE: Mapping[Path, str] = MappingProxyType({})
SCORE = "eval/"  # of a line of metrics; the first one in a line chose the best checkpoint


class RunSummary(NamedTuple):
    """A run as a list shows it."""

    folder: Path
    fields: dict[str, Any]  # of its config, by dotted names
    steps: int  # done so far
    planned: int  # all of them; 0: not known
    best: int | None  # the step of the best checkpoint; None: nothing was scored
    scores: dict[str, float]  # of that step, on the development sets
    average: float | None  # over the test sets; None: it is not finished, or has none
    compared: tuple[float, float] | None  # the scores before and after training, where it was compared with its start
    is_done: bool


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The runs' folders in folders, at any depth, sorted by name."""

    def fail(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be read: {system_message(error)}")

    runs: dict[Path, None] = {}
    for folder in folders:
        here = []
        for place, inside, files in os.walk(folder, onerror=fail):
            if "run.json" in files:
                here.append(Path(place))
                inside.clear()  # no run lies in another
        if not here:
            raise UserError(f"{folder}: has no run (a folder with run.json)")
        runs |= dict.fromkeys(sorted(here))
    return list(runs)


def summarize_run(folder: Path) -> RunSummary:
    """A run as its files describe it."""
    run = read_run(folder / "run.json")
    file = folder / "result.json"
    result = read_json(file) if file.is_file() else {}
    scored: dict[int, dict[str, float]] = {}
    steps = 0
    for line in read_metrics(folder):
        steps = max(steps, line["step"])
        if scores := {name.removeprefix(SCORE): value for name, value in line.items() if name.startswith(SCORE)}:
            scored.setdefault(line["step"], {}).update(scores)
    best = result.get(BEST_STEP)
    if best not in scored:
        best = max(scored, key=lambda step: next(iter(scored[step].values())), default=None)
    average = result.get("average")
    fields = flatten(run["config"])
    epochs, batch_size = fields["train.epochs"], fields["train.batch_size"]
    mixed = fields["data.batching"] == "mixed"
    planned = fields["train.max_steps"] or (epochs * (run["examples"] // batch_size) if mixed else 0)
    against = result.get(AGAINST_START, {})
    compared = (against["before"], against["after"]) if "before" in against else None
    is_done = file.is_file() or 0 < planned <= steps
    scores = {} if best is None else scored[best]
    return RunSummary(folder, fields, steps, planned, best, scores, average, compared, is_done)


def differing_fields(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """The fields in which runs differ and that change results, with each run's value."""
    names = [name for name in dict.fromkeys(name for run in runs for name in run.fields) if not name.startswith(FREE)]
    columns = {name: [run.fields.get(name) for run in runs] for name in names}
    return {name: values for name, values in columns.items() if any(value != values[0] for value in values)}


def rows(runs: Sequence[RunSummary], root: Path, labels: Mapping[Path, str] = NONE) -> Iterator[list[str]]:
    """A header, and a row a run: its folder, seen from `root`, and all of the above as text.

    `labels` stand in the place of the folders that have one.
    """
    before_and_after = ["before", "after"] if any(run.compared for run in runs) else []
    sets = list(dict.fromkeys(name for run in runs for name in run.scores))
    fields = differing_fields(runs)
    yield ["run", "steps", "", "best", *sets, "test avg.", *before_and_after, *short_names(fields)]
    for number, run in enumerate(runs):
        name = _folder_label(run.folder, root, labels)
        steps = f"{run.steps:,}" + (f" of {run.planned:,}" if run.planned else "")
        scores = [f"{run.scores[task]:.2f}" if task in run.scores else "" for task in sets]
        average = "" if run.average is None else f"{run.average:.2f}"
        best = "" if run.best is None else f"{run.best:,}"
        changed = [_format_value(values[number]) for values in fields.values()]
        compared = [f"{score:.2f}" for score in run.compared] if run.compared else [""] * len(before_and_after)
        yield [name, steps, "done" if run.is_done else "", best, *scores, average, *compared, *changed]


def _folder_label(folder: Path, root: Path, labels: Mapping[Path, str]) -> str:
    for labelled, label in labels.items():
        if folder.is_relative_to(labelled):
            return str(PurePath(label) / folder.relative_to(labelled))
    return str(folder.relative_to(root)) if folder.is_relative_to(root) else str(folder)


def _format_value(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else f"{value}"
    return text if len(text) <= WIDEST else f"…{text[1 - WIDEST :]}"
