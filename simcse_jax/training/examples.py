"""A few rows that were not trained on, before and after training, for the run's report (`examples.json`).

They are pairs, each text of which is compared with each other one, and the rows that training moved most: queries by
the rank of their right answer, pairs with scores by how far their cosine's place is from their score's, sentences by
whether a classifier finds their class.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from simcse_jax.devices import processes
from simcse_jax.encoding.embedder import to_unit
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.against import Paired
from simcse_jax.evaluation.analysis.inputs import evenly
from simcse_jax.evaluation.beir import Collection
from simcse_jax.evaluation.evaluator import Embed
from simcse_jax.evaluation.retrieval import Retrieval, sides
from simcse_jax.evaluation.transfer import Transfer
from simcse_jax.evaluation.transfer_files import Task
from simcse_jax.host.storage import Folder, read_json, write_atomically
from simcse_jax.runs.run_files import EXAMPLES_FILE

PAIRS, MOVED = 8, 3  # pairs, and rows that rose or fell most
LOOKED_AT = 200  # pairs of which the first that have no text in common are shown
LONGEST = 300  # characters of a text

WHEN = ("before", "after")
Moved = tuple[float, dict[str, Any]]  # what was gained, and what the report shows


def before(evaluators: Sequence[Any], embed: Embed) -> dict[str, Any]:
    """The pairs, and their cosines by the model that training starts from; {} where no evaluator has pairs."""
    pairs = [[cut(text) for text in pair] for pair in _pairs(evaluators)]
    return {"pairs": pairs, "before": cosines(evaluators, embed)} if pairs else {}


def cosines(evaluators: Sequence[Any], embed: Embed) -> list[list[float]]:
    """The cosine of each pair's first text with each pair's second one, by a model that encodes a few texts."""
    if not (pairs := _pairs(evaluators)):
        return []
    prompts = next((evaluator.prompts for evaluator in _judging(evaluators) if isinstance(evaluator, Retrieval)), None)
    model = sides(embed, prompts)
    encoders = model.query, model.document
    first, second = (to_unit(encode(side)) for encode, side in zip(encoders, zip(*pairs, strict=True), strict=True))
    return np.round((first @ second.T).astype(np.float64), 4).tolist()


def moved(evaluators: Sequence[Any], tasks: Sequence[Paired]) -> dict[str, Any]:
    """The rows that gained and lost most, with their texts; `tasks` as `against.measure` has them of the evaluators."""
    of = [task for evaluator in _judging(evaluators) for task in evaluator.tasks.values()]
    rows: list[Moved] = []
    for task, paired in zip(of, tasks, strict=True):
        if isinstance(task, Collection):
            rows += _moved_queries(task, paired)
        else:
            rows += _moved_sentences(task, paired) if isinstance(task, Task) else _moved_pairs(task, paired)
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


def _judging(evaluators: Sequence[Any]) -> list[Any]:
    """Those of the first kind that there is: similarity, retrieval, classes; as in `against.measure`."""
    kinds = (sts.Similarity, Retrieval, Transfer)
    by_kind = ([evaluator for evaluator in evaluators if isinstance(evaluator, kind)] for kind in kinds)
    return next(filter(None, by_kind), [])


def _pairs(evaluators: Sequence[Any]) -> list[tuple[str, str]]:
    """At most `PAIRS` of the first task, of which no two share a text: by score, query or class."""
    tasks = [task for evaluator in _judging(evaluators) for task in evaluator.tasks.values()]
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


def _moved_queries(task: Collection, paired: Paired) -> Iterator[Moved]:
    """Queries by the gain of their score."""
    assert paired.found is not None
    gain, deepest = paired.after - paired.before, paired.found.shape[2]
    answers = {query: row for query, row, relevance in reversed(task.judged.tolist()) if relevance > 0}
    ranks = [_rank(task.gains(rows) > 0) for rows in paired.found]

    def document(row: int) -> str:
        return task.second[row] if 0 <= row < len(task.second) else ""

    for query in _ends(gain):
        named = {"query": task.first[query], "right answer": document(answers.get(query, -1))}
        named |= {
            f"found first, {when}": document(int(rows[query][0])) for when, rows in zip(WHEN, paired.found, strict=True)
        }
        places = [f"#{rank[query]}" if rank[query] else f"not in the first {deepest}" for rank in ranks]
        shown = {name: cut(text) for name, text in named.items()}
        yield float(gain[query]), {"texts": shown, "change": f"right answer: {places[0]} → {places[1]}"}


def _moved_pairs(task: sts.Pairs, paired: Paired) -> Iterator[Moved]:
    """Pairs by how much nearer the place of their cosine came to that of their score."""
    places = [np.argsort(np.argsort(-values, kind="stable")) + 1 for values in (task.gold, paired.before, paired.after)]
    gain = np.abs(places[1] - places[0]) - np.abs(places[2] - places[0])
    for row in _ends(gain):
        right, was, now = (int(place[row]) for place in places)
        change = f"#{right} of {len(gain)} by score ({task.gold[row]:g}); by cosine #{was} → #{now}"
        yield (
            float(gain[row]),
            {"texts": {"text": cut(task.first[row]), "other text": cut(task.second[row])}, "change": change},
        )


def _moved_sentences(task: Task, paired: Paired) -> Iterator[Moved]:
    """Sentences whose class a classifier finds by one model alone."""
    gain, rows = paired.after - paired.before, _judged_rows(task)
    for place in _ends(gain):
        text, label = cut(task.first[rows[place]]), int(task.labels[rows[place]])
        places = ["found" if side[place] else "not found" for side in (paired.before, paired.after)]
        yield float(gain[place]), {"texts": {"text": text}, "change": f"class {label}: {places[0]} → {places[1]}"}


def _judged_rows(task: Task) -> range:
    return range(*task.splits.get("test", slice(None)).indices(len(task.labels)))


def _ends(gain: np.ndarray) -> list[int]:
    """The rows with the least and the greatest gains."""
    order = np.argsort(gain, kind="stable")
    return np.unique(np.concatenate([order[:MOVED], order[-MOVED:]])).tolist()


def _rank(relevant: np.ndarray) -> list[int]:
    """The rank of the first relevant document of each query; 0 where none was found."""
    return np.where(relevant.any(axis=1), relevant.argmax(axis=1) + 1, 0).tolist()
