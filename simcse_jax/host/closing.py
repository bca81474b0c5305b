"""Closing several things, whatever happens."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def closing_all(things: Sequence[Any]) -> Iterator[None]:
    """Closes all of them after the block; an error inside the block takes precedence over errors while closing."""
    with contextlib.ExitStack() as closing:
        for thing in reversed(things):
            closing.callback(thing.close)
        try:
            yield
        except BaseException:
            for thing in things:
                with contextlib.suppress(Exception):
                    thing.close()
            closing.pop_all()
            raise
