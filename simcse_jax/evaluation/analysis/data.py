"""The sentences that a space is measured on."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from simcse_jax.data.sentences import read_sentences
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.host.storage import local_path

T = TypeVar("T")


class Data(NamedTuple):
    """What to measure on."""

    sentences: list[str]
    name: str
    pairs: sts.Pairs | None  # the graded pairs that the sentences were taken from, if they were


def read_data(name: str, column: str | None = None, split: str = "test", count: int = 0) -> Data:
    """The sentences of a file; of graded pairs the first ones, since the second ones repeat their words.

    Args:
      name: a file of sentences or of graded pairs, or SentEval's folder.
      column: the column of the sentences, where its name is not a usual one.
      split: of STS-B, of SentEval's folder; a file has none.
      count: how many, spread evenly from the first to the last; 0: all.
    """
    path = local_path(name)
    if not sts.is_graded(path):
        found, about, pairs = read_sentences(name, column), path.name, None
    elif column:
        raise UserError(f"--column {column}: of graded pairs the first sentences are taken; leave it out")
    else:
        pairs = next(iter(sts.read(name, [sts.DEVELOPMENT], split)[0].values()))
        found, about = pairs.first_as_read, f"STS-B {split}" if path.is_dir() else path.name
    if count > len(found):
        raise UserError(f"{name}: has {len(found):,} sentences, {count:,} were asked for")
    return Data(evenly(found, count) if count else found, about, pairs)


def evenly(items: Sequence[T], count: int) -> list[T]:
    """`count` of the items, spread evenly from the first to the last; all of them if there are fewer."""
    places = np.linspace(0, len(items) - 1, min(count, len(items)))
    return [items[place] for place in places.round().astype(int)]
