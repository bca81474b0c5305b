"""Whether training helped: the scores of a model before and after it, with a paired bootstrap (Efron and Tibshirani,
An Introduction to the Bootstrap, 1993, chapter 13).

Pairs or queries are drawn with replacement, the same for both models. Those that share texts are drawn together, as a
group (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int
from scipy.special import stdtrit

from simcse_jax.choices import MEASURES
from simcse_jax.data.held_out import connected
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.beir import Collection
from simcse_jax.evaluation.evaluator import Embed, by_task, encode_once
from simcse_jax.evaluation.retrieval import BEST, Retrieval, deepest, of_rows, search, sides
from simcse_jax.evaluation.transfer import Transfer, hits

RESAMPLES, AT_ONCE = 1000, 100
COVERAGE = 0.95


class Paired(NamedTuple):
    """P rows of a task as two models see them: the cosines of pairs that have gold scores, or the scores of queries or
    sentences."""

    groups: Int[np.ndarray, " P"]  # rows of one group are drawn together
    before: Float64[np.ndarray, " P"]
    after: Float64[np.ndarray, " P"]
    gold: Float64[np.ndarray, " P"] | None  # of pairs
    found: Int[np.ndarray, "2 P K"] | None = None  # of queries: the rows of the best documents before and after

    def scores(self, counts: Int[np.ndarray, "R P"]) -> Float64[np.ndarray, "2 R"]:
        """The scores before and after in R samples, which have row p `counts[:, p]` times.

        They are Spearman's correlation × 100 of cosines and gold scores, 0 where one side is constant, or means.
        """
        if self.gold is None:
            return np.stack([counts @ values / counts.sum(axis=1) for values in (self.before, self.after)])
        gold = _ranks(self.gold, counts)
        return 100 * np.stack([_correlation(_ranks(side, counts), gold, counts) for side in (self.before, self.after)])

    @property
    def all_rows(self) -> tuple[float, float]:
        """The scores before and after of the rows as they are."""
        before, after = self.scores(np.ones((1, len(self.groups)), np.int64))[:, 0].tolist()
        return before, after


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


def compare(tasks: Sequence[Paired], measure: str, seed: int) -> Comparison:
    """Compares two models by the means of the tasks' scores, named `measure`. The seed is that of the resamples.

    The interval is d ± t s with d the difference, s the standard deviation of its resamples, and t Student's quantile
    with as many degrees of freedom as there are more groups than tasks: percentiles are too narrow where groups are
    few. The tasks may be folds; how often models whose training rows overlap are then found better than they are,
    `benchmarks/tune_power.py` measures.
    """
    generator = np.random.default_rng(seed)
    scores, drawn, freedom = [], [], 0
    for task in tasks:
        groups = np.unique(task.groups, return_inverse=True)[1]
        number = int(groups.max()) + 1
        differences = []
        for _ in range(RESAMPLES // AT_ONCE):
            counts = generator.multinomial(number, np.full(number, 1 / number), size=AT_ONCE)
            before, after = task.scores(counts[:, groups])
            differences.append(after - before)
        drawn.append(np.concatenate(differences))
        scores.append(task.all_rows)
        freedom += number - 1
    was, now = np.mean(scores, axis=0)
    half = stdtrit(freedom, (1 + COVERAGE) / 2) * np.mean(drawn, axis=0).std(ddof=1)
    was, now, low, high = (round(float(number), 4) for number in (was, now, now - was - half, now - was + half))
    return Comparison(was, now, low, high, measure)


def measure(evaluators: Sequence[Any], before: Embed, after: Embed) -> tuple[list[Paired], str]:
    """What two models say of all tasks of the first of these kinds: similarity, retrieval, classes; the measure's name.

    There is at least one `sts.Similarity`, `Retrieval` or `Transfer`.
    """
    judges = judging(evaluators)
    kind = next(kind for kind in KINDS if isinstance(judges[0], kind.of))
    tasks = [task for evaluator in judges for task in kind.tasks(evaluator, before, after)]
    return tasks, f"{kind.name(judges[0])} × 100" + f", mean of {len(tasks)} tasks" * (len(tasks) > 1)


def judging(evaluators: Sequence[Any]) -> list[Any]:
    """Those of the first of `KINDS` that there is; [] if there is none."""
    by_kind = ([evaluator for evaluator in evaluators if isinstance(evaluator, kind.of)] for kind in KINDS)
    return next(filter(None, by_kind), [])


def _ranks(values: Float64[np.ndarray, " P"], counts: Int[np.ndarray, "R P"]) -> Float64[np.ndarray, "R P"]:
    """The rank of each value in R samples that have it `counts` times, from 1; equal values share their mean."""
    place = np.unique(values, return_inverse=True)[1]
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    times = np.add.reduceat(counts[:, order], starts, axis=1)
    return (np.cumsum(times, axis=1) - (times - 1) / 2)[:, place]


def _correlation(
    first: Float64[np.ndarray, "R P"], second: Float64[np.ndarray, "R P"], counts: Int[np.ndarray, "R P"]
) -> Float64[np.ndarray, " R"]:
    """Pearson's correlation in each sample; 0 if one side is constant."""
    weights = counts / counts.sum(axis=1, keepdims=True)
    first, second = (side - (weights * side).sum(axis=1, keepdims=True) for side in (first, second))
    covariance, one, other = ((weights * a * b).sum(1) for a, b in ((first, second), (first, first), (second, second)))
    lengths = np.sqrt(one * other)
    return np.divide(covariance, lengths, out=np.zeros_like(covariance), where=lengths > 0)


def _of_similarity(evaluator: sts.Similarity, before: Embed, after: Embed) -> Iterator[Paired]:
    def cosines_of(embed: Embed, tasks: dict[str, sts.Pairs]) -> dict[str, Float64[np.ndarray, " P"]]:
        texts = iter(encode_once(embed, [side for pairs in tasks.values() for side in (pairs.first, pairs.second)]))
        return {name: sts.cosine(next(texts), next(texts)) for name in tasks}

    first, second = (by_task(cosines_of, embed, evaluator.tasks) for embed in (before, after))
    for name, pairs in evaluator.tasks.items():
        yield Paired(connected((pairs.first, pairs.second)), first[name], second[name], pairs.gold)


def _of_retrieval(evaluator: Retrieval, before: Embed, after: Embed) -> Iterator[Paired]:
    measure = evaluator.measures[0]
    for collection in evaluator.tasks.values():
        models = (sides(embed, evaluator.prompts) for embed in (before, after))
        how = deepest([measure]), evaluator.storage, evaluator.devices
        found = [search(model, collection, *how) for model in models]
        first, second = (BEST * of_rows(rows, collection, [measure])[measure] for rows in found)
        yield Paired(_groups(collection), first, second, None, np.stack(found))


def _of_transfer(evaluator: Transfer, before: Embed, after: Embed) -> Iterator[Paired]:
    first, second = (by_task(hits, embed, evaluator.tasks) for embed in (before, after))
    for name, task in evaluator.tasks.items():
        (rows, was), (_, now) = first[name], second[name]
        groups = connected([[column[row] for row in rows.tolist()] for column in (task.first, task.second) if column])
        yield Paired(groups, BEST * was, BEST * now, None)


def _groups(collection: Collection) -> Int[np.ndarray, " Q"]:
    """(Q,) the group of each query: those that share their text or a relevant document's, but for case, are in one."""
    queries, documents = collection.judged[collection.judged[:, 2] > 0][:, :2].T
    texts = [collection.first[query] for query in queries], [collection.second[document] for document in documents]
    of = dict(zip(queries.tolist(), connected(texts).tolist(), strict=True))
    alone = len(queries)  # a query without a relevant document, which scores 0 in any case
    return np.array([of.get(query, alone + query) for query in range(len(collection.first))])


class Kind(NamedTuple):
    """How evaluators of a kind compare two models."""

    of: type
    name: Callable[[Any], str]  # of the measure
    tasks: Callable[[Any, Embed, Embed], Iterator[Paired]]


KINDS = (
    Kind(sts.Similarity, lambda evaluator: "Spearman", _of_similarity),
    Kind(Retrieval, lambda evaluator: MEASURES[evaluator.measures[0]], _of_retrieval),
    Kind(Transfer, lambda evaluator: "Accuracy", _of_transfer),
)
