"""Whether training helped: the scores of a model before and after it, with a paired bootstrap (Efron and Tibshirani,
An Introduction to the Bootstrap, 1993, chapter 13).

Pairs or queries are drawn with replacement, the same for both models, and the difference of the scores is computed
again; 95% of these differences lie within the interval.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from simcse_jax.evaluation import sts
from simcse_jax.evaluation.evaluator import Embed, encode_once
from simcse_jax.evaluation.retrieval import BEST, Retrieval, score, sides

RESAMPLES = 1000
INTERVAL = (2.5, 97.5)  # percent

Statistic = Callable[[np.ndarray], float]  # the score of a task's rows


class Task(NamedTuple):
    """One task: how many rows it has, and the score of some of them before and after."""

    rows: int
    before: Statistic
    after: Statistic


class Comparison(NamedTuple):
    """The means over the tasks, and the interval of their difference."""

    before: float
    after: float
    low: float
    high: float

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
    similarity = [each for each in evaluators if isinstance(each, sts.Similarity)]
    tasks = [task for each in similarity for task in _of_similarity(each, before, after)]
    if not tasks:
        tasks = [
            task for each in evaluators if isinstance(each, Retrieval) for task in _of_retrieval(each, before, after)
        ]
    generator = np.random.default_rng(seed)

    def difference() -> float:
        rows = [generator.integers(task.rows, size=task.rows) for task in tasks]
        return float(np.mean([task.after(each) - task.before(each) for task, each in zip(tasks, rows, strict=True)]))

    low, high = np.percentile([difference() for _ in range(RESAMPLES)], INTERVAL)
    every = [(task.before(np.arange(task.rows)), task.after(np.arange(task.rows))) for task in tasks]
    was, now = np.mean(every, axis=0)
    return Comparison(*(round(float(number), 4) for number in (was, now, low, high)))


def _of_similarity(evaluator: sts.Similarity, before: Embed, after: Embed) -> list[Task]:
    pairs = [*evaluator.tasks.values()]
    texts = [side for each in pairs for side in (each.first, each.second)]
    encoded = [encode_once(embed, texts) for embed in (before, after)]

    def statistic(embeddings: Sequence[np.ndarray], place: int) -> Statistic:
        cosines: Float64[np.ndarray, " P"] = sts.cosine(*embeddings[2 * place : 2 * place + 2])
        return lambda rows: sts.spearman(cosines[rows], pairs[place].gold[rows])

    return [
        Task(len(each.gold), *(statistic(embeddings, place) for embeddings in encoded))
        for place, each in enumerate(pairs)
    ]


def _of_retrieval(evaluator: Retrieval, before: Embed, after: Embed) -> list[Task]:
    measure = evaluator.measures[0]

    def statistic(embed: Embed, collection: Any) -> Statistic:
        model = sides(embed, evaluator.prompts)
        values = BEST * score(model, collection, [measure], evaluator.storage, evaluator.devices)[measure]
        return lambda rows: float(values[rows].mean())

    return [
        Task(len(collection.first), statistic(before, collection), statistic(after, collection))
        for collection in evaluator.tasks.values()
    ]
