"""Whether training helped: the scores of a model before and after it, with a paired bootstrap (Efron and Tibshirani,
An Introduction to the Bootstrap, 1993, chapter 13).

Pairs or queries are drawn with replacement, the same for both models. Those that share texts are drawn together, as a
group (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).
"""

from collections.abc import Callable, Sequence
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

Statistic = Callable[[np.ndarray], float]  # the score of a task's rows


class ResampledTask(NamedTuple):
    """One task: the group of each row, and the score of some rows before and after."""

    groups: Int[np.ndarray, " P"]
    before: Statistic
    after: Statistic


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

    Args:
      evaluators: of the end of a run; at least one `sts.Similarity` or `Retrieval`.
      before, after: the models.
      seed: of the resamples.
    """
    similarity = [evaluator for evaluator in evaluators if isinstance(evaluator, sts.Similarity)]
    tasks = [task for evaluator in similarity for task in _of_similarity(evaluator, before, after)]
    measure = "Spearman"
    if not tasks:
        retrieval = [evaluator for evaluator in evaluators if isinstance(evaluator, Retrieval)]
        measure = MEASURES[retrieval[0].measures[0]]
        tasks = [task for evaluator in retrieval for task in _of_retrieval(evaluator, before, after)]
    generator = np.random.default_rng(seed)

    members = [rows_of(task.groups) for task in tasks]

    def difference() -> float:
        differences = []
        for task, groups in zip(tasks, members, strict=True):
            rows = np.concatenate([groups[n] for n in generator.integers(len(groups), size=len(groups))])
            differences.append(task.after(rows) - task.before(rows))
        return float(np.mean(differences))

    low, high = np.percentile([difference() for _ in range(RESAMPLES)], INTERVAL)
    figures = [[statistic(np.arange(len(task.groups))) for statistic in task[1:]] for task in tasks]
    was, now = np.mean(figures, axis=0)
    measure += " × 100" + f", mean of {len(tasks)} tasks" * (len(tasks) > 1)
    was, now, low, high = (round(float(number), 4) for number in (was, now, low, high))
    return Comparison(was, now, low, high, measure)


def rows_of(groups: Int[np.ndarray, " P"]) -> list[np.ndarray]:
    """The rows of each group."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)


def _of_similarity(evaluator: sts.Similarity, before: Embed, after: Embed) -> list[ResampledTask]:
    def cosines_of(embed: Embed, tasks: dict[str, sts.Pairs]) -> dict[str, Float64[np.ndarray, " P"]]:
        sides = encode_once(embed, [side for pairs in tasks.values() for side in (pairs.first, pairs.second)])
        return {name: sts.cosine(*sides[2 * place : 2 * place + 2]) for place, name in enumerate(tasks)}

    def statistic(cosines: Float64[np.ndarray, " P"], gold: np.ndarray) -> Statistic:
        return lambda rows: sts.spearman(cosines[rows], gold[rows])

    by_model = [by_task(cosines_of, embed, evaluator.tasks) for embed in (before, after)]
    return [
        ResampledTask(
            connected((pairs.first, pairs.second)), *(statistic(cosines[name], pairs.gold) for cosines in by_model)
        )
        for name, pairs in evaluator.tasks.items()
    ]


def _of_retrieval(evaluator: Retrieval, before: Embed, after: Embed) -> list[ResampledTask]:
    measure = evaluator.measures[0]

    def statistic(embed: Embed, collection: Any) -> Statistic:
        model = sides(embed, evaluator.prompts)
        values = BEST * score(model, collection, [measure], evaluator.storage, evaluator.devices)[measure]
        return lambda rows: float(values[rows].mean())

    return [
        ResampledTask(_groups(collection), statistic(before, collection), statistic(after, collection))
        for collection in evaluator.tasks.values()
    ]


def _groups(collection: Collection) -> Int[np.ndarray, " Q"]:
    """(Q,) the group of each query: queries with a relevant document in common are in one."""
    relevant = collection.judged[collection.judged[:, 2] > 0]
    queries, documents = (
        [f"{kind}{number}" for number in column] for kind, column in zip("qd", relevant.T[:2], strict=True)
    )
    of = dict(zip(relevant[:, 0].tolist(), connected((queries, documents)).tolist(), strict=True))
    alone = len(relevant)  # a query without a relevant document, which scores 0 in any case
    return np.array([of.get(query, alone + query) for query in range(len(collection.first))])
