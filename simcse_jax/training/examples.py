"""A few rows that were not trained on, before and after training, for the run's report (`examples.json`).

They are pairs, each text of which is compared with each other one, and the rows that training moved most: queries by
the rank of their right answer, pairs with scores by how far their cosine's place is from their score's, sentences by
whether a classifier finds their class.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from simcse_jax.devices import processes
from simcse_jax.encoding.embedder import to_unit
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.against import Paired, judging
from simcse_jax.evaluation.analysis.inputs import evenly
from simcse_jax.evaluation.beir import Collection
from simcse_jax.evaluation.evaluator import Embed
from simcse_jax.evaluation.retrieval import Retrieval, sides
from simcse_jax.evaluation.transfer_files import Task
from simcse_jax.host.storage import Folder, read_json, write_atomically
from simcse_jax.runs.run_files import EXAMPLES_FILE

PAIRS, MOVED = 8, 3  # pairs, and rows that rose or fell most
LOOKED_AT = 200  # pairs of which the first that have no text in common are shown
LONGEST = 300  # characters of a text

WHEN = ("before", "after")
Moved = tuple[np.ndarray, Callable[[int], tuple[dict[str, str], str]]]  # each row's gain; its texts and its change


def before(evaluators: Sequence[Any], embed: Embed) -> dict[str, Any]:
    """The pairs, and their cosines by the model that training starts from; {} where no evaluator has pairs."""
    pairs = [[cut(text) for text in pair] for pair in _pairs(evaluators)]
    return {"pairs": pairs, "before": cosines(evaluators, embed)} if pairs else {}


def cosines(evaluators: Sequence[Any], embed: Embed) -> list[list[float]]:
    """The cosine of each pair's first text with each pair's second one, by a model that encodes a few texts."""
    if not (pairs := _pairs(evaluators)):
        return []
    prompts = next((evaluator.prompts for evaluator in judging(evaluators) if isinstance(evaluator, Retrieval)), None)
    model = sides(embed, prompts)
    encoders = model.query, model.document
    first, second = (to_unit(encode(side)) for encode, side in zip(encoders, zip(*pairs, strict=True), strict=True))
    return np.round((first @ second.T).astype(np.float64), 4).tolist()


def moved(evaluators: Sequence[Any], tasks: Sequence[Paired]) -> dict[str, Any]:
    """The rows that gained and lost most, with their texts; `tasks` as `against.measure` has them of the evaluators."""
    of = [task for evaluator in judging(evaluators) for task in evaluator.tasks.values()]
    rows = [row for task, paired in zip(of, tasks, strict=True) for row in _ends(task, paired)]
    rows.sort(key=lambda row: row[0])
    rose, fell = rows[: -MOVED - 1 : -1], rows[:MOVED]
    return {"rose": [row for gain, row in rose if gain > 0], "fell": [row for gain, row in fell if gain < 0]}


def update(folder: Folder, values: Mapping[str, Any]) -> None:
    """Adds values to the file of a run."""
    with processes.exit_together():
        if values and processes.is_first():
            path = folder / EXAMPLES_FILE
            known = read_json(path) if path.is_file() else {}
            write_atomically(path, json.dumps(known | dict(values)) + "\n")


def cut(text: str) -> str:
    """A text in one line, with an ellipsis where it is longer than `LONGEST`; half characters are replaced."""
    line = " ".join(text[: 4 * LONGEST].split())
    line = line if len(line) <= LONGEST and len(text) <= 4 * LONGEST else f"{line[:LONGEST].rstrip()}…"
    return line.encode("utf-8", "replace").decode()


def _pairs(evaluators: Sequence[Any]) -> list[tuple[str, str]]:
    """At most `PAIRS` of the first task, of which no two share a text: by score, query or class."""
    tasks = [task for evaluator in judging(evaluators) for task in evaluator.tasks.values()]
    candidates: list[tuple[str, str]] = []
    if tasks and isinstance(tasks[0], Collection):
        judged = tasks[0].judged
        rows = judged[(judged[:, 2] > 0) & (judged[:, 1] < len(tasks[0].second)), :2].tolist()
        candidates = [(tasks[0].first[query], tasks[0].second[row]) for query, row in evenly(rows, LOOKED_AT)]
    elif tasks and isinstance(tasks[0], Task):
        by_class: dict[int, list[str]] = {}
        for row in _judged_rows(tasks[0]):
            by_class.setdefault(int(tasks[0].labels[row]), []).append(tasks[0].first[row])
        candidates = [(texts[0], texts[-1]) for _, texts in sorted(by_class.items())]
    elif tasks:
        order = np.argsort(-tasks[0].gold, kind="stable")[:LOOKED_AT].tolist()
        candidates = [(tasks[0].first[row], tasks[0].second[row]) for row in order]
    chosen: list[tuple[str, str]] = []
    seen: set[str] = set()
    for pair in candidates:
        if pair[0].lower() != pair[1].lower() and not seen & {*pair} and len(chosen) < PAIRS:
            chosen.append(pair)
            seen |= {*pair}
    return chosen


def _ends(task: Any, paired: Paired) -> Iterator[tuple[float, dict[str, Any]]]:
    """The rows of a task with the least and the greatest gains, each with what it gained."""
    if isinstance(task, Collection):
        gain, show = _queries(task, paired)
    else:
        gain, show = _sentences(task, paired) if isinstance(task, Task) else _graded(task, paired)
    order = np.argsort(gain, kind="stable")
    for row in np.unique(np.concatenate([order[:MOVED], order[-MOVED:]])).tolist():
        texts, change = show(row)
        yield float(gain[row]), {"texts": {name: cut(text) for name, text in texts.items()}, "change": change}


def _queries(task: Collection, paired: Paired) -> Moved:
    """Queries gain what their score gains."""
    assert paired.found is not None
    found, relevant = paired.found, [task.gains(rows) > 0 for rows in paired.found]
    answers = {query: row for query, row, relevance in reversed(task.judged.tolist()) if relevance > 0}

    def document(row: int) -> str:
        return task.second[row] if 0 <= row < len(task.second) else ""

    def show(query: int) -> tuple[dict[str, str], str]:
        texts = {"query": task.first[query], "right answer": document(answers.get(query, -1))}
        texts |= {f"found first, {when}": document(int(rows[query][0])) for when, rows in zip(WHEN, found, strict=True)}
        sides = [side[query] for side in relevant]
        was, now = (f"#{row.argmax() + 1}" if row.any() else f"not in the first {len(row)}" for row in sides)
        return texts, f"right answer: {was} → {now}"

    return paired.after - paired.before, show


def _graded(task: sts.Pairs, paired: Paired) -> Moved:
    """Pairs gain the places by which their cosine comes nearer to those of their score; equal scores share theirs."""
    ordered = np.sort(-task.gold)
    first, last = np.searchsorted(ordered, -task.gold) + 1, np.searchsorted(ordered, -task.gold, "right")
    places = [np.argsort(np.argsort(-cosines, kind="stable")) + 1 for cosines in (paired.before, paired.after)]
    was, now = (np.maximum(np.maximum(first - place, place - last), 0) for place in places)

    def show(row: int) -> tuple[dict[str, str], str]:
        right = f"#{first[row]}" + f" to #{last[row]}" * bool(last[row] > first[row])
        change = f"score {task.gold[row]:g}, {right} of {len(ordered)}; cosine "
        change += " → ".join(f"#{place[row]}" for place in places)
        return {"text": task.first[row], "other text": task.second[row]}, change

    return was - now, show


def _sentences(task: Task, paired: Paired) -> Moved:
    """Sentences gain where a classifier finds their class after training alone."""
    rows = _judged_rows(task)

    def show(place: int) -> tuple[dict[str, str], str]:
        found = ["found" if side[place] else "not found" for side in (paired.before, paired.after)]
        return {"text": task.first[rows[place]]}, f"class {task.labels[rows[place]]}: {' → '.join(found)}"

    return paired.after - paired.before, show


def _judged_rows(task: Task) -> range:
    return range(*task.splits.get("test", slice(None)).indices(len(task.labels)))
