"""Transfer: linear classifiers on frozen embeddings, with SentEval's seven tasks and its protocols.

| task | protocol |
| --- | --- |
| MR, CR, SUBJ, MPQA | nested 10-fold cross-validation: the inner one chooses the regularization, the outer one scores |
| TREC, MRPC | 10-fold cross-validation over the training set chooses, the test set scores |
| SST2 | the development set chooses, the test set scores |

As in SentEval, folds are stratified and shuffled with seed 1111, and accuracies are rounded to two digits before the
best regularization, the first of equals, is taken. docs/background/papers.md compares the classifiers.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Int64, Shaped

from simcse_jax.choices import GRIDS, PROTOCOLS, TRANSFER
from simcse_jax.evaluation import early_stopping, logistic, sts
from simcse_jax.evaluation.evaluator import Embed, Encode, by_task, encode_once, pair_features, with_titles
from simcse_jax.evaluation.transfer_files import FOLDS, Task
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import sha256

SEED = 1111
TITLES = {"SST2": "SST", "MRPC": "MRPC acc/F1"}  # names in the paper's table
Mask = Bool[np.ndarray, " N"]


class Fold(NamedTuple):
    """The data of one accuracy: masks (N,) of the rows to train on and to score, and both for each inner fold."""

    train: Mask
    test: Mask
    inner: list[tuple[Mask, Mask]]

    @property
    def has_development_set(self) -> bool:
        """Whether the inner fold is the whole training set, and the development set scores it."""
        return len(self.inner) == 1


# The development accuracy of each of a fold's regularizations, and the class of each row by the best one.
FoldResult = tuple[Float[np.ndarray, " C"], Int[np.ndarray, " N"]]


def stratified_folds(labels: Shaped[np.ndarray, " N"], count: int = FOLDS, seed: int = SEED) -> Int64[np.ndarray, " N"]:
    """The fold of each row: those of scikit-learn's StratifiedKFold(count, shuffle=True, random_state=seed)."""
    generator = np.random.RandomState(seed)
    _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
    by_appearance = np.argsort(np.argsort(first))[numbers]
    ordered = np.sort(by_appearance)
    shares = [np.bincount(ordered[fold::count], minlength=len(first)) for fold in range(count)]
    folds = np.empty(len(labels), np.int64)
    for number, share in enumerate(np.transpose(shares)):
        fold_numbers = np.repeat(np.arange(count), share)
        generator.shuffle(fold_numbers)
        folds[by_appearance == number] = fold_numbers
    return folds


def _cross_validation(labels: Int[np.ndarray, " N"], rows: Mask, count: int) -> list[tuple[Mask, Mask]]:
    """Masks (N,) to train on and to score, for folds of the given rows."""
    folds = np.full(len(labels), -1)
    folds[rows] = stratified_folds(labels[rows], count)
    return [((folds >= 0) & (folds != fold), folds == fold) for fold in range(count)]


def make_folds(task: Task, count: int = FOLDS) -> list[Fold]:
    """`count` folds with as many inner ones; with a test set one with those; with a development set one with one."""
    masks = {split: np.zeros(len(task.labels), bool) for split in task.splits}
    for split, rows in task.splits.items():
        masks[split][rows] = True
    if "test" not in masks:
        outer = _cross_validation(task.labels, masks["train"], count)
        return [Fold(train, test, _cross_validation(task.labels, train, count)) for train, test in outer]
    train, development = masks["train"], masks.get("dev")
    inner = _cross_validation(task.labels, train, count) if development is None else [(train, development)]
    return [Fold(train, masks["test"], inner)]


def features(encode: Encode, task: Task) -> Float[np.ndarray, "N width"]:
    """The classifier's inputs: embeddings (N, D), or [|u - v|; u ⊙ v] (N, 2D) of pairs."""
    if not task.second:
        return encode_once(encode, [task.first])[0]
    return pair_features(*encode_once(encode, [task.first, task.second]))


def score(
    inputs: Float[np.ndarray, "N D"],
    labels: Int[np.ndarray, " N"],
    folds: Sequence[Fold],
    protocol: str = "sklearn",
    classes: int = 2,
) -> list[dict[str, Any]]:
    """Chooses the regularization of each fold and scores it.

    Returns:
      By fold {"accuracy": …, "dev_accuracy": …, "regularization": …, "f1": …}, × 100; F1 of label 1, only for
      two classes. The regularization is C or λ, depending on the protocol.
    """
    if protocol == "sklearn":
        choices = _converged(inputs, labels, folds)
    else:
        choices = _early_stopped(inputs, labels, folds, classes, protocol)
    results = []
    for fold, (development, classes_of_all) in zip(folds, choices, strict=True):
        predicted, wanted = classes_of_all[fold.test], labels[fold.test]
        result = {
            "accuracy": round(100 * float(np.mean(predicted == wanted)), 2),
            "dev_accuracy": float(development.max()),
            "regularization": float(GRIDS[protocol][development.argmax()]),
        }
        if classes == 2:
            hits, named = np.sum((predicted == 1) & (wanted == 1)), np.sum(predicted == 1) + np.sum(wanted == 1)
            result["f1"] = round(200 * float(hits / max(named, 1)), 2)
        results.append(result)
    return results


def _development(accuracies: Sequence[Float[np.ndarray, " C"]]) -> Float[np.ndarray, " C"]:
    """The development accuracy × 100 of each regularization, from those of the inner folds."""
    return np.round(100 * np.mean(accuracies, axis=0), 2)


def _converged(
    inputs: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], folds: Sequence[Fold]
) -> Iterator[FoldResult]:
    """By scikit-learn's protocol; all fits of all folds are solved together."""
    present = np.unique(labels[folds[0].train])
    numbers = np.where(np.isin(labels, present), np.searchsorted(present, labels), -1)  # -1: never predicted
    masks = np.array([mask for fold in folds for mask in (fold.train, *(train for train, _ in fold.inner))])
    masks, place = np.unique(masks, axis=0, return_inverse=True)  # SST-2's inner fold is its outer one
    penalties = 1 / (np.array(GRIDS["sklearn"]) * masks.sum(axis=1, keepdims=True))
    predictions = iter(logistic.predict(inputs, numbers, masks, penalties)[place.ravel()])
    for fold in folds:
        outer = next(predictions)  # (C, N)
        right = [next(predictions)[:, held_out] == numbers[held_out] for _, held_out in fold.inner]
        development = _development([is_right.mean(axis=1, dtype=np.float64) for is_right in right])
        yield development, present[outer[development.argmax()]]


def _early_stopped(
    inputs: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], folds: Sequence[Fold], classes: int, protocol: str
) -> Iterator[FoldResult]:
    """By a protocol of SentEval's PyTorch classifier."""
    grid, settings = GRIDS[protocol], early_stopping.SETTINGS[protocol]
    inner = [[early_stopping.masked_split(*masks) for masks in fold.inner] for fold in folds]
    outer = [early_stopping.random_split(fold.train) for fold in folds if not fold.has_development_set]
    classifier = early_stopping.Classifier(inputs, labels, classes, [*itertools.chain(*inner), *outer], settings)
    with Progress(sum(map(len, inner)) + len(outer), "fits", shown=jax.process_index() == 0) as bar:

        def fit(split: early_stopping.RowSplit, penalties: Sequence[float]) -> early_stopping.Fitted:
            fitted = classifier.fit(split, penalties)
            bar.advance()
            return fitted

        for number, fold in enumerate(folds):
            fitted = [fit(split, grid) for split in inner[number]]
            development = _development([classifier.accuracy for classifier in fitted])
            best = int(development.argmax())
            if fold.has_development_set:
                yield development, fitted[0].predicted[best]  # a second training would be the same
            else:
                yield development, fit(outer[number], [grid[best]]).predicted[0]


def hits(encode: Encode, tasks: dict[str, Task]) -> dict[str, tuple[Int64[np.ndarray, " T"], Bool[np.ndarray, " T"]]]:
    """By task the rows that are scored, and of which of them the protocol `sklearn` finds the class."""
    hits_of = {}
    for name, task in tasks.items():
        folds, right = make_folds(task), np.zeros(len(task.labels), bool)
        for fold, (_, classes) in zip(folds, _converged(features(encode, task), task.labels, folds), strict=True):
            right[fold.test] = classes[fold.test] == task.labels[fold.test]
        rows = np.flatnonzero(np.any([fold.test for fold in folds], axis=0))
        hits_of[name] = rows, right[rows]
    return hits_of


def evaluate(encode: Encode, tasks: dict[str, Task], *, protocol: str = "sklearn") -> dict[str, dict[str, Any]]:
    """Trains and scores the classifiers of each task, whose distinct sentences are encoded once.

    Returns:
      By task {"accuracy": …, "dev_accuracy": …, "examples": …, "folds": […]}, and "f1" for MRPC; × 100, means over the
      folds. `examples` are those that were scored; the folds are the results of `score`.
    """
    results = {}
    for name, task in with_titles(tasks):
        settings = early_stopping.SETTINGS.get(protocol)
        folds = make_folds(task, settings.folds if settings else FOLDS)
        scored = score(features(encode, task), task.labels, folds, protocol, task.classes)
        shown = [{key: value for key, value in fold.items() if key != "f1" or name == "MRPC"} for fold in scored]
        means = {
            key: round(float(np.mean([fold[key] for fold in shown])), 2) for key in shown[0] if key != "regularization"
        }
        results[name] = {**means, "examples": int(sum(fold.test.sum() for fold in folds)), "folds": shown}
    return results


@dataclasses.dataclass(frozen=True)
class Transfer:
    """Scores transfer tasks: {"transfer": the result of `evaluate`}, the protocol, and their average."""

    tasks: dict[str, Task]
    missing: Sequence[str] = ()  # requested tasks without data
    transfer_protocol: str = "sklearn"

    def __call__(self, embed: Embed) -> dict[str, Any]:
        """The numbers of one model."""
        results = by_task(functools.partial(evaluate, protocol=self.transfer_protocol), embed, self.tasks)
        numbers = {"transfer": results, "transfer_protocol": self.transfer_protocol}
        if self.missing:  # no other average would compare
            return numbers
        mean = np.mean([result["accuracy"] for result in results.values()])
        return numbers | {"transfer_average": round(float(mean), 4)}

    def table(self, numbers: dict[str, Any]) -> str:
        """Accuracies in the columns of SimCSE's Table E.1, MRPC's F1 after its own; a dash means no figure."""
        results = numbers["transfer"]
        tasks = sorted([*results, *self.missing], key=[*TRANSFER, *results].index)
        titles = [TITLES.get(task, task) for task in tasks]
        cells = [f"{results[task]['accuracy']:.2f}" if task in results else "-" for task in tasks]
        if "MRPC" in results:
            cells[tasks.index("MRPC")] += f"/{results['MRPC']['f1']:.2f}"
        if len(tasks) > 1:
            mean = numbers.get("transfer_average")
            titles, cells = [*titles, "Avg."], [*cells, "-" if mean is None else f"{mean:.2f}"]
        return sts.aligned([titles, cells])

    @property
    def protocol(self) -> str:
        """A description of the figures."""
        return f"accuracy × 100, protocol {self.transfer_protocol} ({PROTOCOLS[self.transfer_protocol]})"


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """The accuracy of one task, under a name; it chooses the best checkpoint."""

    name: str
    tasks: dict[str, Task]  # one

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the sentences and their classes."""
        return sha256(*(array for task in self.tasks.values() for array in (np.array(task.first), task.labels)))

    def __call__(self, embed: Embed) -> dict[str, float]:
        """The number of one model."""
        ((_, right),) = by_task(hits, embed, self.tasks).values()
        return {self.name: round(100 * float(np.mean(right)), 4)}
