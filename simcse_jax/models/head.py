"""When a model has a head: a dense layer with tanh after the pooler.

SimCSE trains with a head. The supervised model keeps it at test time, the unsupervised one drops it (section 6.3).
"""

from collections.abc import Container

PREFIX = "head."  # the names of its parameters start with it


def has_head(params: Container[str]) -> bool:
    """Whether parameters include a head, by their names."""
    return f"{PREFIX}kernel" in params
