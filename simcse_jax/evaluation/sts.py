"""Semantic textual similarity: the correlation of cosines with gold scores, in every protocol of SimCSE's Table B.1.

Reads SentEval's folder (`data/downstream`: STS/STS12-en-test, …, STS/STSBenchmark, SICK), and files of graded pairs.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64

from simcse_jax.choices import AGGREGATIONS, EXTRA, METRICS, TASKS
from simcse_jax.data.files import reader_of
from simcse_jax.data.held_out import FEWEST, hold_out
from simcse_jax.data.rows import MISSING, Row
from simcse_jax.data.scores import parse_score
from simcse_jax.data.separated import read_separated, read_tabs
from simcse_jax.data.sts import COLUMNS, HEADERS, PLACES, SINGLE_FILES, SUBSETS, files_of_task, read_places, read_year
from simcse_jax.errors import UserError
from simcse_jax.evaluation.evaluator import Embed, Encode, by_task, encode_once
from simcse_jax.host.storage import local_path, sha256

TITLES = {"STSBenchmark": "STS-B", "SICKRelatedness": "SICK-R"}  # where the paper's table has another name
# The keys next to the tasks in a result file.
BESIDE_TASKS = (
    *("average", "averages", "retrieval", "retrieval_average", "retrieval_settings"),
    *("mteb", "mteb_average", "truncated", "development", "ended_at_step", "best_step"),
    "against_start",
    *("transfer", "transfer_average", "transfer_protocol"),
    *(name for names in EXTRA.values() for name in names),
)
OF_RECORDS = (".jsonl", ".parquet")  # files whose rows name their columns
DEVELOPMENT = "STSBenchmark"  # the task that chooses the best checkpoint


class Pairs(NamedTuple):
    """Graded sentence pairs. `subsets` maps a subset's name to its slice; empty for a task without subsets."""

    first: list[str]
    second: list[str]
    gold: Float[np.ndarray, " P"]
    subsets: dict[str, slice]
    as_read: Sequence[str] = ()  # all first and then all second sentences, with the white space that the file has

    @property
    def first_as_read(self) -> list[str]:
        """The first sentences as the file has them, which an analysis of words measures."""
        return [*self.as_read[: len(self.first)]] or self.first


def _scored(rows: Iterable[Row]) -> list[tuple[str, str, float]]:
    """The pairs that have a gold score."""

    def text(value: object) -> str:
        return "" if value in (None, MISSING) or value != value else str(value)  # a missing one is NaN in Arrow

    fields = ((row.where, *map(text, row.fields)) for row in rows)
    read = ((first, second, parse_score(score, f"{where}: the score")) for where, first, second, score in fields)
    return [(first, second, score) for first, second, score in read if score is not None]


def _pairs(subsets: dict[str, list[tuple[str, str, float]]], where: str) -> Pairs:
    slices: dict[str, slice] = {}
    rows: list[tuple[str, str, float]] = []
    for name, subset in subsets.items():
        if len({gold for *_, gold in subset}) < 2:
            few = f"{len(subset)} graded pairs; a correlation needs two or more"
            problem = few if len(subset) < 2 else f"all {len(subset)} scores are {subset[0][2]:g}: no correlation"
            raise UserError(f"{where}, {name}: {problem}" if len(subsets) > 1 else f"{where}: {problem}")
        slices[name] = slice(len(rows), len(rows) + len(subset))
        rows += subset
    first, second, gold = zip(*rows, strict=True)
    # SentEval splits sentences at white space and SimCSE joins the words again: byte-level tokenizers see it.
    cleaned = [" ".join(sentence.split()) for sentence in first + second]
    named_slices = slices if len(subsets) > 1 else {}
    return Pairs(cleaned[: len(rows)], cleaned[len(rows) :], np.array(gold), named_slices, [*first, *second])


def read_task(folder: Path, task: str, split: str = "test") -> Pairs | None:
    """One split of a task of a SentEval folder; None if it does not exist. The years have only a test set."""
    if task in SINGLE_FILES:
        path = folder / SINGLE_FILES[task][split]
        if not path.is_file():
            return None
        return _pairs({task: _scored(read_places(path, PLACES[task], task in HEADERS))}, str(path))
    year = folder / "STS" / f"{task}-en-test"
    if split != "test" or not year.is_dir():
        return None
    files = zip(SUBSETS[task], files_of_task(folder, task, split), strict=True)
    return _pairs({subset: _scored(read_year(file)) for subset, file in files}, str(year))


def read_graded_pairs(path: Path) -> Pairs:
    """A file of graded pairs: a table with the columns sentence1, sentence2 and score, or laid out like STS-B."""
    if path.suffix in OF_RECORDS:
        names, rows = reader_of(path)(path)
    else:
        first = next(read_tabs(path), Row("", [])).fields
        if len(first) >= 7 and not set(first) >= set(COLUMNS):
            return _pairs({path.stem: _scored(read_places(path, PLACES["STSBenchmark"]))}, str(path))
        names, rows = read_separated(path)
    if not set(names) >= set(COLUMNS):
        demand = "needs" if path.suffix in OF_RECORDS else "line 1 must name"
        raise UserError(f"{path}: {demand} the columns sentence1, sentence2 and score (or be STS-B's)")
    places = [names.index(name) for name in COLUMNS]
    graded = (Row(row.where, [row.fields[place] for place in places]) for row in rows)
    return _pairs({path.stem: _scored(graded)}, str(path))


def halves(pairs: Pairs, seed: int, where: str) -> tuple[Pairs, Pairs]:
    """Graded pairs in two halves that share no text, drawn with the seed; `where` they come from."""
    split = hold_out((pairs.first, pairs.second), len(pairs.gold), seed)
    independent = [split.independent(rows) for rows in (split.development, split.test)]
    if min(independent) < FEWEST:
        raise UserError(
            f"{where}: {len(pairs.gold)} pairs, of which two halves without common texts have {independent[0]} and "
            f"{independent[1]} that share none with each other; {FEWEST} are needed in each"
        )
    development, test = (
        Pairs([pairs.first[row] for row in rows], [pairs.second[row] for row in rows], pairs.gold[rows], {})
        for rows in (split.development, split.test)
    )
    for half in (development, test):
        if np.ptp(half.gold) == 0:
            raise UserError(f"{where}: all scores of a half of the pairs are {half.gold[0]:g}: no correlation")
    return development, test


def is_graded(path: Path) -> bool:
    """Whether `read` can read it: a folder, or a file of graded pairs by its header, or by one of STS-B's names."""
    if path.is_dir() or path.name in {Path(file).name for file in SINGLE_FILES["STSBenchmark"].values()}:
        return True
    return path.suffix in (".csv", ".tsv") and path.is_file() and set(read_separated(path)[0]) >= set(COLUMNS)


def read(data: str, tasks: Sequence[str], split: str = "test") -> tuple[dict[str, Pairs], list[str]]:
    """The tasks of a SentEval folder, and the names of those that are not there; or the one of a file of pairs."""
    path = local_path(data)
    if path.is_file():
        name = path.name if path.stem in (*BESIDE_TASKS, *TASKS) else path.stem  # these mean something else
        return {name: read_graded_pairs(path)}, []
    present = {task: pairs for task in tasks if (pairs := read_task(path, task, split))}
    if not present:
        kind = "development set of " if split == "dev" else ""
        raise UserError(
            f"{data}: no {kind}{', '.join(tasks)} there; expected SentEval's data/downstream or a file of pairs"
        )
    return present, [task for task in tasks if task not in present]


def cosine(first: Float[np.ndarray, "P D"], second: Float[np.ndarray, "P D"]) -> Float64[np.ndarray, " P"]:
    """Row by row, in float64: (P, D), (P, D) to (P,)."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.sum(first * second, axis=1) / np.maximum(norms, 1e-12)


def spearman(similarity: Float[np.ndarray, " P"], gold: Float[np.ndarray, " P"]) -> float:
    """Spearman's rank correlation × 100; 0 if one side is constant and has no ranks, NaN if a number is NaN.

    The same bits as those of `scipy.stats.spearmanr`, which takes most of a second to import, and three times as long.
    """

    def ranks(values: Float[np.ndarray, " P"]) -> Float64[np.ndarray, " P"]:  # from 1; equal values share their mean
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    if len(gold) < 2 or np.ptp(similarity) == 0 or np.ptp(gold) == 0:
        return 0.0
    if np.isnan(similarity).any() or np.isnan(gold).any():
        return math.nan
    return 100 * float(np.corrcoef(ranks(similarity), ranks(gold))[1, 0])  # [0, 1] may be another by a bit


def pearson(similarity: Float[np.ndarray, " P"], gold: Float[np.ndarray, " P"]) -> float:
    """Pearson's correlation × 100; 0 if one side is constant."""
    if len(gold) < 2 or np.ptp(similarity) == 0 or np.ptp(gold) == 0:
        return 0.0
    return 100 * float(np.corrcoef(similarity, gold)[0, 1])


def evaluate(encode: Encode, tasks: dict[str, Pairs]) -> dict[str, dict[str, Any]]:
    """Scores each task in every protocol, × 100. Identical sentences are encoded once.

    Returns:
      By task: {"spearman": …, "pearson": …, "pairs": …}, over all pairs together; "mean" and "wmean", both
      {"spearman": …, "pearson": …}, over its subsets, the same as all without subsets; "subsets", each
      {"spearman": …, "pearson": …, "pairs": …} by name.
    """

    def scores(similarity: Float[np.ndarray, " P"], gold: Float[np.ndarray, " P"]) -> dict[str, Any]:
        return {"spearman": spearman(similarity, gold), "pearson": pearson(similarity, gold), "pairs": len(gold)}

    sides = iter(encode_once(encode, (side for pairs in tasks.values() for side in (pairs.first, pairs.second))))
    results = {}
    for task, pairs in tasks.items():
        similarity = cosine(next(sides), next(sides))
        whole = scores(similarity, pairs.gold)
        subsets = {name: scores(similarity[part], pairs.gold[part]) for name, part in pairs.subsets.items()}
        parts = list(subsets.values()) or [whole]
        sizes = [part["pairs"] for part in parts]
        means = {metric: float(np.mean([part[metric] for part in parts])) for metric in METRICS}
        weighted = {metric: float(np.average([part[metric] for part in parts], weights=sizes)) for metric in METRICS}
        results[task] = _rounded({**whole, "mean": means, "wmean": weighted, "subsets": subsets})
    return results


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return round(value, 4) if isinstance(value, float) else value


@dataclasses.dataclass(frozen=True)
class Similarity:
    """Scores similarity tasks: the results of `evaluate` by task, and their average."""

    tasks: dict[str, Pairs]
    missing: Sequence[str] = ()  # requested tasks without data
    metrics: Sequence[str] = ("spearman",)  # in the table
    aggregations: Sequence[str] = ("all",)  # in the table
    every_average: bool = False  # the averages in all protocols, not only in the papers'

    def __call__(self, embed: Embed) -> dict[str, Any]:
        """The numbers of one model."""
        results = by_task(evaluate, embed, self.tasks)
        if self.missing:  # no other average would compare
            return results
        means = averages(results)
        return results | {"average": means["spearman"]["all"]} | ({"averages": means} if self.every_average else {})

    def table(self, results: dict[str, dict[str, Any]]) -> str:
        """The papers' table: a column for each task, the average last; a dash means no figure.

        It has a row for each metric and aggregation, and for a regressor; a single row has no label.
        """
        order = [*SUBSETS, *SINGLE_FILES]
        tasks = sorted(
            [*self.tasks, *self.missing], key=lambda task: order.index(task) if task in order else len(order)
        )
        has_regressor = any("regressor" in results[task] for task in self.tasks)
        kinds = [*self.aggregations, *(["regressor"] if has_regressor else [])]
        rows = [[TITLES.get(task, task) for task in tasks] + ["Avg."] * (len(tasks) > 1)]
        labels = [""]
        for metric in self.metrics:
            for kind in kinds:
                values = [figure(results[task], metric, kind) if task in self.tasks else None for task in tasks]
                if len(tasks) > 1:
                    present = [value for value in values if value is not None]
                    values.append(float(np.mean(present)) if len(present) == len(values) else None)
                rows.append(["-" if value is None else f"{value:.2f}" for value in values])
                labels.append(f"{METRICS[metric]}, {kind}")
        return aligned([[label, *row] for label, row in zip(labels, rows, strict=True)] if len(rows) > 2 else rows)

    @property
    def protocol(self) -> str:
        """A description of the figures."""
        is_all = list(self.aggregations) == ["all"]
        how = "all pairs of a task together" if is_all else f"by {', '.join(self.aggregations)}"
        return f"{' and '.join(METRICS[metric] for metric in self.metrics)} × 100, {how}"


@dataclasses.dataclass(frozen=True)
class Correlation:
    """The Spearman correlation of one task, under a name; it chooses the best checkpoint."""

    name: str
    tasks: dict[str, Pairs]  # one

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the pairs, on which the choice depends."""
        pairs = self.tasks.values()
        texts = [task_pairs.as_read or [*task_pairs.first, *task_pairs.second] for task_pairs in pairs]
        return sha256(*map(np.array, texts), *(task_pairs.gold for task_pairs in pairs))

    def __call__(self, embed: Embed) -> dict[str, float]:
        """The number of one model."""
        (result,) = by_task(evaluate, embed, self.tasks).values()
        return {self.name: result["spearman"]}


def figure(result: dict[str, Any], metric: str, aggregation: str) -> float | None:
    """One figure of a task's result. The aggregation `regressor` is None if none was trained."""
    return result[metric] if aggregation == "all" else result.get(aggregation, {}).get(metric)


def averages(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The mean of each figure over the tasks, by metric and aggregation."""
    return {
        metric: {
            name: round(float(np.mean([figure(result, metric, name) for result in results.values()])), 4)
            for name in AGGREGATIONS
        }
        for metric in METRICS
    }


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines of text, the first one as the header; columns have 6 characters or more."""
    widths = [max(6, *map(len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])
