"""When a model has a head: a dense layer with tanh after the pooler.

SimCSE trains with a head. The supervised model keeps it at test time, the unsupervised one drops it (section 6.3).
"""

from collections.abc import Container
from typing import NamedTuple


class Head(NamedTuple):
    """The meaning of a value of `model.mlp`."""

    trained: bool  # the model has a head in training
    scored: bool  # the model has a head at test time


HEADS = {"train": Head(True, False), "always": Head(True, True), "none": Head(False, False)}  # by `model.mlp`
PREFIX = "head."  # the names of its parameters start with it


def has_head(params: Container[str]) -> bool:
    """Whether parameters include a head, by their names."""
    return f"{PREFIX}kernel" in params
