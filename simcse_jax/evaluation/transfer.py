"""Transfer: logistic regression on frozen embeddings, with SentEval's seven tasks and its protocol.

| task | protocol |
| --- | --- |
| MR, CR, SUBJ, MPQA | nested 10-fold cross-validation: the inner one chooses the regularization, the outer one scores |
| TREC, MRPC | 10-fold cross-validation over the training set chooses, the test set scores |
| SST2 | the development set chooses, the test set scores |

As in SentEval, sentences are split at white space and joined by single spaces, sorted by their number of words before
they are dealt to folds (stratified, shuffled with seed 1111), and accuracies are rounded to two digits before the best
regularization, the first of equals, is taken. The regularization is SentEval's for scikit-learn, C = 2⁻² … 2³, or that
of its PyTorch classifier, a penalty λ/2 ‖w‖² added to the mean loss with λ = 10⁻⁵ … 10⁻².

It differs from SentEval in three things. SentEval tries C = 2⁻¹ … 2⁵ for TREC and MRPC; here all tasks have one grid.
Its PyTorch classifier is trained with Adam until accuracy on held-out rows stops rising and penalizes the bias; here
each fit goes to the minimum, with a free bias. And a fit is more exact than scikit-learn's default tolerance.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Int64, Shaped

from simcse_jax.evaluation import logistic, sts
from simcse_jax.evaluation.evaluator import Embed, Encode, by_task, encode_once, titled
from simcse_jax.evaluation.tasks import GRIDS, TRANSFER
from simcse_jax.evaluation.transfer_files import FOLDS, Task

SEED = 1111
TITLES = {"SST2": "SST", "MRPC": "MRPC acc/F1"}  # names in the paper's table


Mask = Bool[np.ndarray, " N"]


class Fold(NamedTuple):
    """The data of one accuracy: masks (N,) of the rows to train on and to score, and both for each inner fold."""

    train: Mask
    test: Mask
    inner: list[tuple[Mask, Mask]]


def stratified_folds(labels: Shaped[np.ndarray, " N"], count: int = FOLDS, seed: int = SEED) -> Int64[np.ndarray, " N"]:
    """The fold of each row: (N,) labels to (N,) numbers below `count`, with the same share of every class in each.

    They are those of scikit-learn's StratifiedKFold(count, shuffle=True, random_state=seed).
    """
    generator = np.random.RandomState(seed)
    _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
    by_appearance = np.argsort(np.argsort(first))[numbers]
    ordered = np.sort(by_appearance)
    shares = [np.bincount(ordered[fold::count], minlength=len(first)) for fold in range(count)]
    folds = np.empty(len(labels), np.int64)
    for number, share in enumerate(np.transpose(shares)):
        own = np.repeat(np.arange(count), share)
        generator.shuffle(own)
        folds[by_appearance == number] = own
    return folds


def _cross_validation(labels: Int[np.ndarray, " N"], rows: Mask) -> list[tuple[Mask, Mask]]:
    """Masks (N,) to train on and to score, for folds of the given rows."""
    folds = np.full(len(labels), -1)
    folds[rows] = stratified_folds(labels[rows])
    return [((folds >= 0) & (folds != fold), folds == fold) for fold in range(FOLDS)]


def make_folds(task: Task) -> list[Fold]:
    """Without splits ten folds with ten inner ones, without a development set one with ten, otherwise one with one."""
    masks = {split: np.zeros(len(task.labels), bool) for split in task.splits}
    for split, rows in task.splits.items():
        masks[split][rows] = True
    if "test" not in masks:
        outer = _cross_validation(task.labels, masks["train"])
        return [Fold(train, test, _cross_validation(task.labels, train)) for train, test in outer]
    inner = [(masks["train"], masks["dev"])] if "dev" in masks else _cross_validation(task.labels, masks["train"])
    return [Fold(masks["train"], masks["test"], inner)]


def features(encode: Encode, task: Task) -> Float[np.ndarray, "N width"]:
    """The classifier's inputs: embeddings (N, D), or [|u - v|; u ⊙ v] (N, 2D) of pairs.

    Raises:
      UserError: when an embedding is not finite.
    """
    if not task.second:
        return encode_once(encode, [task.first])[0]
    first, second = encode_once(encode, [task.first, task.second])
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def score(
    inputs: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], folds: Sequence[Fold], grid: str = "sklearn"
) -> list[dict[str, Any]]:
    """Chooses the regularization of each fold and scores it; all fits of all folds are solved together.

    Args:
      inputs: (N, D).
      labels: (N,).
      folds: of the rows.
      grid: one of `GRIDS`.

    Returns:
      By fold {"accuracy": …, "dev_accuracy": …, "regularization": …, "f1": …}, × 100; F1 of label 1, only for
      two classes. The regularization is C or λ, depending on the grid.
    """
    classes = np.unique(labels[folds[0].train])
    numbers = np.where(np.isin(labels, classes), np.searchsorted(classes, labels), -1)  # -1: never predicted
    masks = np.array([mask for fold in folds for mask in (fold.train, *(train for train, _ in fold.inner))])
    masks, place = np.unique(masks, axis=0, return_inverse=True)  # SST-2's inner fold is its outer one
    sizes = masks.sum(axis=1, keepdims=True)
    choices = np.array(GRIDS[grid])
    # SentEval's PyTorch classifier has a weight vector for each of two classes: their difference pays half.
    decay = choices / 2 if len(classes) == 2 else choices
    penalties = 1 / (choices * sizes) if grid == "sklearn" else np.repeat(decay[None], len(masks), axis=0)
    predictions = iter(logistic.predict(inputs, numbers, masks, penalties)[place.ravel()])
    results = []
    for fold in folds:
        outer = next(predictions)  # (C, N)
        inner = [
            (next(predictions)[:, held_out] == numbers[held_out]).mean(axis=1, dtype=np.float64)
            for _, held_out in fold.inner
        ]
        development = np.round(100 * np.mean(inner, axis=0), 2)
        best = int(np.argmax(development))
        predicted, wanted = outer[best, fold.test], numbers[fold.test]
        result = {
            "accuracy": round(100 * float(np.mean(predicted == wanted)), 2),
            "dev_accuracy": float(development[best]),
            "regularization": float(choices[best]),
        }
        if len(classes) == 2:
            hits, named = np.sum((predicted == 1) & (wanted == 1)), np.sum(predicted == 1) + np.sum(wanted == 1)
            result["f1"] = round(200 * float(hits / max(named, 1)), 2)
        results.append(result)
    return results


def evaluate(encode: Encode, tasks: dict[str, Task], *, grid: str = "sklearn") -> dict[str, dict[str, Any]]:
    """Trains and scores the classifiers of each task.

    Args:
      encode: sentences to embeddings, (N, D); called once for each task, with distinct sentences.
      tasks: the result of `read`.
      grid: `sklearn` or `pytorch`, see the module's docstring.

    Returns:
      By task {"accuracy": …, "dev_accuracy": …, "examples": …, "folds": […]}, and "f1" for MRPC; × 100, means over the
      folds. `examples` are those that were scored; the folds are the results of `score`.

    Raises:
      UserError: when an embedding is not finite.
    """
    results = {}
    for name, task in titled(tasks):
        folds = make_folds(task)
        scored = score(features(encode, task), task.labels, folds, grid)
        shown = [{key: value for key, value in fold.items() if key != "f1" or name == "MRPC"} for fold in scored]
        means = {
            key: round(float(np.mean([fold[key] for fold in shown])), 2) for key in shown[0] if key != "regularization"
        }
        results[name] = {**means, "examples": int(sum(fold.test.sum() for fold in folds)), "folds": shown}
    return results


@dataclasses.dataclass(frozen=True)
class Transfer:
    """Scores transfer tasks: {"transfer": the result of `evaluate`}, and their average."""

    tasks: dict[str, Task]
    missing: Sequence[str] = ()  # requested tasks without data
    grid: str = "sklearn"

    def __call__(self, embed: Embed) -> dict[str, Any]:
        """The numbers of one model."""
        results = by_task(functools.partial(evaluate, grid=self.grid), embed, self.tasks)
        return {"transfer": results, **average(results, self.missing)}

    def table(self, numbers: dict[str, Any]) -> str:
        """The paper's table."""
        return table(numbers["transfer"], self.missing)

    def flat(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """The numbers by task, and those over all tasks."""
        return {**numbers["transfer"], **{name: value for name, value in numbers.items() if name != "transfer"}}

    @property
    def protocol(self) -> str:
        """A description of the figures."""
        return f"accuracy × 100 of logistic regression, grid {self.grid}"


def average(results: dict[str, dict[str, Any]], missing: Sequence[str]) -> dict[str, float]:
    """{"transfer_average": …}, the mean accuracy over the tasks; nothing when a task is missing."""
    if missing:
        return {}
    return {"transfer_average": round(float(np.mean([result["accuracy"] for result in results.values()])), 4)}


def table(results: dict[str, dict[str, Any]], missing: Sequence[str]) -> str:
    """Accuracies in the columns of SimCSE's Table E.1, MRPC's F1 after its own; a dash means no figure."""
    tasks = sorted([*results, *missing], key=TRANSFER.index)
    titles = [TITLES.get(task, task) for task in tasks]
    cells = [f"{results[task]['accuracy']:.2f}" if task in results else "-" for task in tasks]
    cells = [
        f"{cell}/{results[task]['f1']:.2f}" if task == "MRPC" and task in results else cell
        for task, cell in zip(tasks, cells, strict=True)
    ]
    if len(tasks) > 1:
        mean = average(results, missing).get("transfer_average")
        titles, cells = [*titles, "Avg."], [*cells, "-" if mean is None else f"{mean:.2f}"]
    return sts.aligned([titles, cells])
