"""Whether training helped: the scores of a model before and after it, with a paired bootstrap (Efron and Tibshirani,
An Introduction to the Bootstrap, 1993, chapter 13).

Pairs or queries are drawn with replacement, the same for both models. Those that share texts are drawn together, as a
group (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int

from simcse_jax.choices import MEASURES
from simcse_jax.data.held_out import connected
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.beir import Collection
from simcse_jax.evaluation.evaluator import Embed, by_task, encode_once
from simcse_jax.evaluation.retrieval import BEST, Retrieval, score, sides

RESAMPLES = 1000
INTERVAL = (2.5, 97.5)  # percent


class ResampledTask(NamedTuple):
    """One task: the rows of each group, and the score of some rows before and after."""

    groups: list[np.ndarray]
    before: Callable[[np.ndarray], float]
    after: Callable[[np.ndarray], float]


class Comparison(NamedTuple):
    """The means over the tasks, and the interval of their difference."""

    before: float
    after: float
    low: float
    high: float
    measure: str  # of the scores, for people

    @property
    def is_better(self) -> bool:
        """Whether training helped by more than chance."""
        return self.low > 0


def compare(evaluators: Sequence[Any], before: Embed, after: Embed, seed: int) -> Comparison:
    """Compares two models on all tasks of similarity (Spearman × 100), or without any of retrieval (first measure).

    There is at least one `sts.Similarity` or `Retrieval`. The seed is that of the resamples.
    """
    similarity = [evaluator for evaluator in evaluators if isinstance(evaluator, sts.Similarity)]
    tasks = [task for evaluator in similarity for task in _of_similarity(evaluator, before, after)]
    measure = "Spearman"
    if not tasks:
        retrieval = [evaluator for evaluator in evaluators if isinstance(evaluator, Retrieval)]
        measure = MEASURES[retrieval[0].measures[0]]
        tasks = [task for evaluator in retrieval for task in _of_retrieval(evaluator, before, after)]
    generator = np.random.default_rng(seed)

    def difference() -> float:
        differences = []
        for task in tasks:
            drawn = generator.integers(len(task.groups), size=len(task.groups))
            rows = np.concatenate([task.groups[n] for n in drawn])
            differences.append(task.after(rows) - task.before(rows))
        return float(np.mean(differences))

    low, high = np.percentile([difference() for _ in range(RESAMPLES)], INTERVAL)
    everything = [np.sort(np.concatenate(task.groups)) for task in tasks]
    scores = [(task.before(rows), task.after(rows)) for task, rows in zip(tasks, everything, strict=True)]
    numbers = (*np.mean(scores, axis=0), low, high)
    measure += " × 100" + f", mean of {len(tasks)} tasks" * (len(tasks) > 1)
    was, now, low, high = (round(float(number), 4) for number in numbers)
    return Comparison(was, now, low, high, measure)


def _rows_of(groups: Int[np.ndarray, " P"]) -> list[np.ndarray]:
    """The rows of each group."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)


def _of_similarity(evaluator: sts.Similarity, before: Embed, after: Embed) -> Iterator[ResampledTask]:
    def cosines_of(embed: Embed, tasks: dict[str, sts.Pairs]) -> dict[str, Float64[np.ndarray, " P"]]:
        sides = iter(encode_once(embed, [side for pairs in tasks.values() for side in (pairs.first, pairs.second)]))
        return {name: sts.cosine(next(sides), next(sides)) for name in tasks}

    by_model = [by_task(cosines_of, embed, evaluator.tasks) for embed in (before, after)]
    for name, pairs in evaluator.tasks.items():

        def score(rows: np.ndarray, cosines: np.ndarray, gold: np.ndarray = pairs.gold) -> float:
            return sts.spearman(cosines[rows], gold[rows])

        scores = [functools.partial(score, cosines=cosines[name]) for cosines in by_model]
        yield ResampledTask(_rows_of(connected((pairs.first, pairs.second))), *scores)


def _of_retrieval(evaluator: Retrieval, before: Embed, after: Embed) -> Iterator[ResampledTask]:
    measure = evaluator.measures[0]

    def mean(rows: np.ndarray, values: np.ndarray) -> float:
        return float(values[rows].mean())

    for collection in evaluator.tasks.values():
        models = (sides(embed, evaluator.prompts) for embed in (before, after))
        by_model = (score(model, collection, [measure], evaluator.storage, evaluator.devices) for model in models)
        scores = [functools.partial(mean, values=BEST * values[measure]) for values in by_model]
        yield ResampledTask(_rows_of(_groups(collection)), *scores)


def _groups(collection: Collection) -> Int[np.ndarray, " Q"]:
    """(Q,) the group of each query: queries with a relevant document in common are in one."""
    queries, documents = collection.judged[collection.judged[:, 2] > 0][:, :2].T
    names = [f"q{query}" for query in queries], [f"d{document}" for document in documents]
    of = dict(zip(queries.tolist(), connected(names).tolist(), strict=True))
    alone = len(queries)  # a query without a relevant document, which scores 0 in any case
    return np.array([of.get(query, alone + query) for query in range(len(collection.first))])
