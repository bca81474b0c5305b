"""Which of several models is better for the same data, each before and after training (`tune --model A --model B`)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simcse_jax.evaluation.against import Comparison, Paired, compare
from simcse_jax.evaluation.sts import aligned
from simcse_jax.host.storage import Folder, as_path, read_json
from simcse_jax.runs.run_files import AGAINST_START, FOLDS_FILE
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training.folds import read_paired


class Tuned(NamedTuple):
    """A finished run that was compared with its start."""

    folder: str
    against: Comparison
    folds: list[Paired]  # of its rows; []: they were not in folds

    @property
    def kept(self) -> float:
        """The score of the model that is kept."""
        return self.against.after if self.against.is_better else self.against.before

    @property
    def kept_rows(self) -> list[np.ndarray]:
        """What that model says of the rows of each fold."""
        return [fold.after if self.against.is_better else fold.before for fold in self.folds]


def describe_models(folders: Mapping[str, str], seed: int) -> tuple[str, str]:
    """A table of finished runs on the same data, which one is better, and its folder.

    The runs' scores are compared row by row where both were judged in the same folds (`evaluation.against.compare`).

    Args:
      folders: of the runs, by the models' names.
      seed: of the resamples.
    """
    runs = {name: _read(folder) for name, folder in folders.items()}
    rows = [["", "before", "after", "95% interval", "kept"]]
    for name, run in runs.items():
        before, after, low, high, measure = run.against
        rows.append([name, f"{before:.2f}", f"{after:.2f}", f"{low:+.2f} to {high:+.2f}", f"{run.kept:.2f}"])
    best = max(runs, key=lambda name: runs[name].kept)
    lines = [_difference(best, name, runs[best], run, seed) for name, run in runs.items() if name != best]
    title = f"before and after training, the interval of the change, and what is kept ({measure}):"
    return "\n".join([title, aligned(rows), *lines, f"use {runs[best].folder}"]), runs[best].folder


def _read(folder: str) -> Tuned:
    path: Folder = as_path(folder)
    result = (Workdir(path).read_result() or {})[AGAINST_START]
    against = Comparison(*(result[name] for name in Comparison._fields))
    folds = read_paired(read_json(path / FOLDS_FILE)) if "folds" in result else []
    return Tuned(folder, against, folds)


def _difference(best: str, other: str, better: Tuned, worse: Tuned, seed: int) -> str:
    """How much better one model is than another, as text."""
    gain = better.kept - worse.kept
    if not (better.folds and _are_same_rows(better.folds, worse.folds)):
        return f"{best} scores {gain:.2f} more than {other}"
    values = zip(better.folds, worse.kept_rows, better.kept_rows, strict=True)
    found = compare([fold._replace(before=one, after=two) for fold, one, two in values], "", seed)
    interval = f"{gain:+.2f}, 95% interval {found.low:+.2f} to {found.high:+.2f}"
    if found.is_better:
        return f"{best} is better than {other}: {interval}"
    return f"{best} and {other} may be equally good: {interval}"


def _are_same_rows(folds: Sequence[Paired], others: Sequence[Paired]) -> bool:
    ours, theirs = (
        [array for fold in some for array in (fold.groups, fold.gold) if array is not None] for some in (folds, others)
    )
    return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))
