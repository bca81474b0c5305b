"""The head, a dense layer with tanh after the pooler: who has one, and when. The one place where that is decided.

SimCSE trains with a head. The supervised model keeps it at test time, the unsupervised one drops it (section 6.3).
"""

from collections.abc import Container
from typing import NamedTuple


class Head(NamedTuple):
    """What a value of `model.mlp` stands for."""

    trained: bool  # there is one in training
    scored: bool  # it belongs to the model at test time


HEADS = {"train": Head(True, False), "always": Head(True, True), "none": Head(False, False)}  # by `model.mlp`
PREFIX = "head."  # of its parameters' names


def has_head(params: Container[str]) -> bool:
    """Whether there is a head among parameters, by their names."""
    return f"{PREFIX}kernel" in params
