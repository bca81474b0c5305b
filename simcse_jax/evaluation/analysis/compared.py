"""Which models a report has, under which labels, and which of them are compared token by token."""

from collections.abc import Sequence
from typing import NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.evaluation.plotting import short_names, unique
from simcse_jax.host.names import split_label


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
    named = {label: name for name, label in alone if label}
    compared = [tuple((named[text], text) if text in named else split_label(text) for text in pair) for pair in pairs]
    labels: dict[str, str] = {}
    for name, label in [*(each for model, base in compared for each in (base, model)), *alone]:
        labels[name] = label or labels.get(name, "")
    names = list(labels)
    bare = [(model[0], base[0]) for model, base in compared]
    for model, base in bare:
        if model == base:
            raise UserError(f"--pair {model} {base}: is a model and itself")
        if bare.count((model, base)) > 1:
            raise UserError(f"--pair {model} {base}: is given twice")
    for name, _ in alone:
        if [other for other, _ in alone].count(name) > 1:
            raise UserError(f"--models: {name} is given twice")
    shown = [label or short for label, short in zip(labels.values(), short_names(names), strict=True)]
    for label in filter(None, labels.values()):
        if shown.count(label) > 1:
            raise UserError(f"--models: two models have the label {label}; give each its own, NAME=LABEL")
    label_of = dict(zip(names, unique(shown, names), strict=True))
    return Models({label: name for name, label in label_of.items()}, [(label_of[a], label_of[b]) for a, b in bare])
