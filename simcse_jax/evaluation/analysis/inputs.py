"""The sentences that a space is measured on, the models of a report with their labels, and the pairs of models."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from simcse_jax.data.sentences import read_sentences
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.plotting import short_names, unique
from simcse_jax.host.names import split_label
from simcse_jax.host.storage import local_path

T = TypeVar("T")


class SpaceData(NamedTuple):
    """The sentences to measure on."""

    sentences: list[str]
    name: str
    pairs: sts.Pairs | None  # the graded pairs that the sentences were taken from, if they were


def read_data(name: str, column: str | None = None, split: str = "test", count: int = 0) -> SpaceData:
    """The sentences of a file; of graded pairs, or of STS-B's `split` in SentEval's folder, the first ones.

    The second ones of pairs repeat their words. At most `count` are spread evenly from the first to the last; 0: all.
    """
    path = local_path(name)
    if not sts.is_graded(path):
        sentences, about, pairs = read_sentences(name, column), path.name, None
    else:
        pairs = next(iter(sts.read(name, [sts.DEVELOPMENT], split)[0].values()))
        sentences, about = pairs.first_as_read, f"STS-B {split}" if path.is_dir() else path.name
    return SpaceData(evenly(sentences, count) if count else sentences, about, pairs)


def evenly(items: Sequence[T], count: int) -> list[T]:
    """`count` of the items, spread evenly from the first to the last; all of them if there are fewer."""
    places = np.linspace(0, len(items) - 1, min(count, len(items)))
    return [items[place] for place in places.round().astype(int)]


class Models(NamedTuple):
    """The models of a report."""

    names: dict[str, str]  # by their labels, in the order of the report
    pairs: list[tuple[str, str]]  # the labels of a model and of its base


def choose(models: Sequence[str], pairs: Sequence[Sequence[str]]) -> Models:
    """The models in the order of the report: of each pair the base and the model, then those that stand alone.

    Args:
      models: NAME or NAME=LABEL each.
      pairs: a model and its base, each as in `models` or by its label there.
    """
    alone = [split_label(text) for text in models]
    named = {label: (name, label) for name, label in alone if label}
    compared = [tuple(named.get(text) or split_label(text) for text in pair) for pair in pairs]
    labels: dict[str, str] = {}
    for name, label in [*(labelled for model, base in compared for labelled in (base, model)), *alone]:
        labels[name] = label or labels.get(name, "")
    names = list(labels)
    bare = dict.fromkeys((model[0], base[0]) for model, base in compared)
    shown = [label or short for label, short in zip(labels.values(), short_names(names), strict=True)]
    if twice := next((label for label in labels.values() if label and shown.count(label) > 1), ""):
        raise UserError(f"--models: two models have the label {twice}; give each its own, NAME=LABEL")
    label_of = dict(zip(names, unique(shown, names), strict=True))
    return Models({label: name for name, label in label_of.items()}, [(label_of[a], label_of[b]) for a, b in bare])
