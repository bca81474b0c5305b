"""One job at a time for whatever is written: a run's folder, an index, a sweep, an exported model, a file.

A job that writes takes the lock of the place first, and has it to its end; a second job ends at once, and says which
one was there before it. Readers take no lock: what they read is replaced in one piece.

The lock of a folder that is written to for a long time is the file `.lock` in it. So it is the same lock under each of
the folder's names, and under the mount points of several containers. The lock of what is replaced as a whole, a file
or an exported folder, is `.NAME.lock` next to it. Neither exists when no job runs, unless one was killed.

Of several processes that are joined to one job, only the first one takes it.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from simcse_jax.host.locks.disk import held_on_disk
from simcse_jax.host.locks.store import held_in_store
from simcse_jax.host.storage import Folder, is_remote

LOCK = ".lock"  # in a folder, and at the end of the name next to something
Check = Callable[[], None]
_mine: set[tuple[str, int]] = set()  # files of locks, and the threads of this process that have them
os.register_at_fork(after_in_child=_mine.clear)


def never_lost() -> None:
    """The `Check` of a lock on a disk, and of a process that has none."""


@contextlib.contextmanager
def held(folder: Folder) -> Iterator[Check]:
    """Holds the lock of a folder, which is made if it does not exist, for the time of the block.

    A block within the block, in the same thread, takes the lock again without effect.

    Yields:
      A function that raises a `UserError` if the lock was lost, which can happen in an object store: call it before
      what is written there. On a disk it does nothing.

    Raises:
      UserError: when another job has it, which the message names, or the folder cannot be written to.
    """
    if is_remote(folder):
        with held_in_store(folder / LOCK, folder) as check:
            yield check
    else:
        with _held(Path(folder) / LOCK, Path(folder)):
            yield never_lost


@contextlib.contextmanager
def held_next_to(path: Path) -> Iterator[None]:
    """Holds the lock of a file or a folder that is replaced as a whole; otherwise like `held`.

    The lock of a link is that of its target.
    """
    target = Path(os.path.realpath(path))
    with _held(target.with_name(f".{target.name}{LOCK}"), path):
        yield


@contextlib.contextmanager
def _held(file: Path, place: Path) -> Iterator[None]:
    key = (os.path.realpath(file), threading.get_ident())
    if key in _mine:
        yield
        return
    with held_on_disk(file, place):
        _mine.add(key)
        try:
            yield
        finally:
            _mine.discard(key)
