"""What runs wrote while they trained: their development scores, and where they moved on SimCSE's plane.

Runs that differ in their seed, and in nothing else that changes training, are a group; a figure shows its mean.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder
from simcse_jax.runs.measured import Point, read_run, recorded
from simcse_jax.runs.workdir import Workdir

PLANE = ("alignment", "uniformity")
SEED_FOLDER = re.compile(r"seed\d+")  # of a sweep's run, in the folder of its row


class Records(NamedTuple):
    """The records of runs, by their names; a run that has none of a kind is not in it."""

    groups: dict[str, list[str]]  # the names of the runs of each group, by the first one's
    scores: dict[str, dict[int, float]]  # of the development pairs, by step
    scored_on: str  # the name of these pairs
    plane: dict[str, dict[int, dict[str, float]]]  # alignment and uniformity, by step
    measured_on: str  # the name of the sentences


def read_records(folders: Mapping[str, Folder], labels: Mapping[str, str]) -> Records:
    """Reads the records of runs.

    Args:
      labels: those that the user gave, by the runs' names; empty for none. Runs of a group have the same.
    """
    runs = {name: read_run(folder) for name, folder in folders.items()}
    found = {name: _scores(name, folder) for name, folder in folders.items()}
    scored = {name: values for name, (_, values) in found.items() if values}
    tasks = {found[name][0]: name for name in scored}
    if len(tasks) > 1:
        (one, first), (other, second), *_ = tasks.items()
        raise UserError(f"--runs {first} was scored on {one}, {second} on {other}; draw them separately")
    for field, what in (("eval.retrieval.data", "data of retrieval"), ("eval.data", "contents of eval.data")):
        judged = {runs[name]["sha256"].get(field, ""): name for name in scored}
        if len(judged) > 1:
            first, second, *_ = judged.values()
            raise UserError(f"--runs {first} and {second} were scored on different {what}; draw them separately")
    measured = {name: folder for name, folder in folders.items() if _has_measures(folder)}
    points: dict[str, list[Point]] = {}
    measured_on = ""
    if measured:
        points, _, measured_on = recorded(measured, {name: runs[name] for name in measured})
    for name in folders:
        if name not in scored and name not in measured:
            raise UserError(
                f"--runs {name}: nothing was recorded while it trained: no scores (eval.data), and no measures "
                "(--config.analysis.every=10); give --data to measure the checkpoints that it kept"
            )
    plane = {
        name: {int(point["step"]): {field: point[field] for field in PLANE} for point in of_run}
        for name, of_run in points.items()
        if all(field in point for point in of_run for field in PLANE)
    }
    if not scored and not plane:
        raise UserError(
            f"--runs {next(iter(folders))}: there is nothing to draw: alignment was not measured, which needs "
            "analysis.data of pairs, and nothing was scored (eval.data); give --data to measure the checkpoints that "
            "it kept"
        )
    return Records(_groups(runs, labels), scored, next(iter(tasks), ""), plane, measured_on)


def folder_name(name: str) -> str:
    """A run's name for a picture: that of a sweep's run without the folder of its seed."""
    path = PurePosixPath(name.rstrip("/"))
    return str(path.parent) if SEED_FOLDER.fullmatch(path.name) and path.parent.name else name


def _scores(name: str, folder: Folder) -> tuple[str, dict[int, float]]:
    """The name of the development pairs, and the scores by step."""
    scores, tasks = {}, set()
    for line in Workdir(folder).read_metrics():
        for key, value in line.items():
            if key.startswith("eval/"):
                tasks.add(key.removeprefix("eval/"))
                scores[line["step"]] = float(value)
    if len(tasks) > 1:
        raise UserError(f"--runs {name}: metrics.jsonl has scores of {' and '.join(sorted(tasks))}; one is expected")
    return next(iter(tasks), ""), scores


def _has_measures(folder: Folder) -> bool:
    return any("analysis" in line for line in Workdir(folder).read_metrics())


def _groups(runs: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> dict[str, list[str]]:
    """Groups by label, model and config without the seed, in the order of their first runs.

    A seed that a group has already is in another one: rows of a sweep that differ in their post-processing alone are
    the same runs, not more seeds.
    """
    groups: dict[str, list[str]] = {}
    firsts: dict[tuple[str, int], str] = {}
    times: Counter[str] = Counter()
    for name, run in runs.items():
        start = labels[name], run["sha256"].get("model.init_from")
        own = repr((start, sorted(run["config"].items())))
        others = repr((start, sorted((run["config"] | {"seed": None}).items())))
        first = firsts.setdefault((others, times[own]), name)
        times[own] += 1
        groups.setdefault(first, []).append(name)
    return groups
