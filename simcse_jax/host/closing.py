"""Closing several things, whatever happens."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from simcse_jax.errors import UserError


@contextlib.contextmanager
def closing_all(things: Sequence[Any]) -> Iterator[None]:
    """Closes all of them after the block; an error inside the block takes precedence over errors while closing."""
    try:
        yield
    except BaseException:
        for thing in things:
            with contextlib.suppress(UserError):
                thing.close()
        raise
    for thing in things:
        thing.close()
