"""Semantic textual similarity: Spearman correlation of cosines with gold scores, "all" aggregation.

Reads SentEval's folder layout (`data/downstream`: STS/STS12-en-test, …, STS/STSBenchmark, SICK), and single
files of graded pairs.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from simcse_jax.data.sources import open_text
from simcse_jax.errors import UserError

Encode = Callable[[Sequence[str]], np.ndarray]

SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SINGLE_FILES = {
    "STSBenchmark": {"dev": "STS/STSBenchmark/sts-dev.csv", "test": "STS/STSBenchmark/sts-test.csv"},
    "SICKRelatedness": {"dev": "SICK/SICK_trial.txt", "test": "SICK/SICK_test_annotated.txt"},
}
TITLES = {"STSBenchmark": "STS-B", "SICKRelatedness": "SICK-R"}  # where the paper's table has another name
DEVELOPMENT = "STSBenchmark"  # what the best checkpoint is chosen on


class Pairs(NamedTuple):
    """Graded sentence pairs. `subsets` maps a subset's name to its slice; empty for a task without subsets."""

    first: list[str]
    second: list[str]
    gold: np.ndarray  # (P,) float64
    subsets: dict[str, slice]


class _Row(NamedTuple):
    first: str
    second: str
    gold: float


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise UserError(f"{where}: the score {text!r} is not a number")
    return value


def _rows(path: Path, columns: tuple[int, int, int], skip_header: bool = False) -> list[_Row]:
    """Tab-separated lines without quoting; `columns` are those of the score and the two sentences."""
    rows = []
    for number, line in enumerate(open_text(path), 1):
        if not line.strip() or (skip_header and number == 1):
            continue
        fields, where = line.split("\t"), f"{path}: line {number}"
        if len(fields) <= max(columns):
            raise UserError(f"{where}: {len(fields)} tab-separated columns, expected at least {max(columns) + 1}")
        score, first, second = (fields[column] for column in columns)
        if score.strip():
            rows.append(_Row(first, second, _number(score, where)))
    return rows


def _year_subset(folder: Path, subset: str) -> list[_Row]:
    sentences_path, gold_path = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    lines, scores = list(open_text(sentences_path)), list(open_text(gold_path))
    if len(lines) != len(scores):
        raise UserError(f"{sentences_path} has {len(lines)} lines, {gold_path.name} has {len(scores)}")
    rows = []
    for number, (line, score) in enumerate(zip(lines, scores, strict=True), 1):
        if not score.strip():
            continue  # a pair without a gold score
        fields = line.split("\t")
        if len(fields) < 2:
            raise UserError(f"{sentences_path}: line {number}: expected two sentences, separated by a tab")
        rows.append(_Row(fields[0], fields[1], _number(score, f"{gold_path}: line {number}")))
    return rows


def _pairs(subsets: dict[str, list[_Row]], where: str) -> Pairs:
    rows = [row for subset in subsets.values() for row in subset]
    if len(rows) < 2:
        raise UserError(f"{where}: {len(rows)} graded pairs; a correlation needs two or more")
    slices, start = {}, 0
    for name, subset in subsets.items():
        slices[name] = slice(start, start + len(subset))
        start += len(subset)
    gold = np.array([row.gold for row in rows])
    return Pairs([row.first for row in rows], [row.second for row in rows], gold, slices if len(subsets) > 1 else {})


def read_task(folder: Path, task: str, split: str = "test") -> Pairs | None:
    """One task of a SentEval folder; None when its data set (or its development set) is not there.

    Raises:
      UserError: for a damaged file, naming the line.
    """
    if task in SINGLE_FILES:
        path = folder / SINGLE_FILES[task][split]
        if not path.is_file():
            return None
        # SICK's columns are pair_ID, sentence_A, sentence_B, relatedness_score, entailment_judgment.
        rows = _rows(path, (4, 5, 6)) if task == "STSBenchmark" else _rows(path, (3, 1, 2), skip_header=True)
        return _pairs({task: rows}, str(path))
    year = folder / "STS" / f"{task}-en-test"
    if split != "test" or not year.is_dir():
        return None
    return _pairs({subset: _year_subset(year, subset) for subset in SUBSETS[task]}, str(year))


def read_graded_pairs(path: Path) -> Pairs:
    """A file of graded pairs: tab-separated with the header sentence1, sentence2, score, or laid out like STS-B.

    Raises:
      UserError: when it is neither, or damaged.
    """
    header = next(open_text(path), "").split("\t")
    if {"sentence1", "sentence2", "score"} <= set(header):
        columns = (header.index("score"), header.index("sentence1"), header.index("sentence2"))
        return _pairs({path.stem: _rows(path, columns, skip_header=True)}, str(path))
    if len(header) >= 7:
        return _pairs({path.stem: _rows(path, (4, 5, 6))}, str(path))
    raise UserError(f"{path}: line 1 must be the header sentence1, sentence2, score, separated by tabs (or be STS-B's)")


def read(data: str, tasks: Sequence[str], split: str = "test") -> tuple[dict[str, Pairs], list[str]]:
    """The tasks of a SentEval folder, or the one of a file of graded pairs.

    Returns:
      Pairs by task, in the order of `tasks` (a file's task is named like the file), and the tasks that are missing.

    Raises:
      UserError: when `data` is not there, no task is, or a file is damaged.
    """
    path = Path(data).expanduser()
    if path.is_file():
        name = path.stem if path.stem != "average" else path.name  # `average` stands beside the tasks
        return {name: read_graded_pairs(path)}, []
    if not path.is_dir():
        raise UserError(f"{data}: no such folder or file of STS data")
    found = {task: read_task(path, task, split) for task in tasks}
    present = {task: pairs for task, pairs in found.items() if pairs is not None}
    if not present:
        what = "development set of " if split == "dev" else ""
        raise UserError(
            f"{data}: no {what}{', '.join(tasks)} there; expected SentEval's data/downstream, with STS and SICK"
        )
    return present, [task for task in tasks if task not in present]


def cosine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Row by row, in float64: (P, D), (P, D) to (P,)."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.sum(first * second, axis=1) / np.maximum(norms, 1e-12)


def spearman(similarity: np.ndarray, gold: np.ndarray) -> float:
    """Spearman's rank correlation × 100; 0 where one side is constant and has no ranks."""
    if len(gold) < 2 or np.ptp(similarity) == 0 or np.ptp(gold) == 0:
        return 0.0
    return 100 * float(scipy.stats.spearmanr(similarity, gold).statistic)


def evaluate(encode: Encode, tasks: dict[str, Pairs]) -> dict[str, dict[str, Any]]:
    """Scores each task: {"spearman": …, "pairs": …, "subsets": {name: {"spearman": …, "pairs": …}}}.

    `spearman` is over all pairs of a task ("all" aggregation: SimCSE, Appendix B). Identical sentences are
    encoded once.
    """
    sentences = list(dict.fromkeys(s for pairs in tasks.values() for side in (pairs.first, pairs.second) for s in side))
    embeddings = encode(sentences)
    if not np.all(np.isfinite(embeddings)):
        raise UserError("the model's embeddings are not finite; it cannot be scored")
    row = {sentence: number for number, sentence in enumerate(sentences)}
    results = {}
    for task, pairs in tasks.items():
        first, second = (embeddings[[row[s] for s in side]] for side in (pairs.first, pairs.second))
        similarity = cosine(first, second)
        results[task] = {
            "spearman": round(spearman(similarity, pairs.gold), 4),
            "pairs": len(pairs.gold),
            "subsets": {
                name: {
                    "spearman": round(spearman(similarity[part], pairs.gold[part]), 4),
                    "pairs": len(pairs.gold[part]),
                }
                for name, part in pairs.subsets.items()
            },
        }
    return results


def average(results: dict[str, dict[str, Any]], missing: Sequence[str]) -> dict[str, float]:
    """{"average": …}, the mean over the tasks; nothing when a task is missing, since it would compare with nothing."""
    if missing:
        return {}
    return {"average": round(float(np.mean([result["spearman"] for result in results.values()])), 4)}


def table(results: dict[str, dict[str, Any]], missing: Sequence[str]) -> str:
    """The paper's table layout: a column a task, the average last; a dash where there is no figure."""
    order = [*SUBSETS, *SINGLE_FILES]
    tasks = sorted([*results, *missing], key=lambda task: order.index(task) if task in order else len(order))
    cells = {TITLES.get(task, task): results[task]["spearman"] if task in results else None for task in tasks}
    if len(tasks) > 1:
        cells["Avg."] = average(results, missing).get("average")
    figures = ["-" if value is None else f"{value:.2f}" for value in cells.values()]
    widths = [max(len(title), len(figure), 6) for title, figure in zip(cells, figures, strict=True)]
    rows = [" | ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in (cells, figures)]
    return "\n".join([rows[0], "-+-".join("-" * width for width in widths), rows[1]])
