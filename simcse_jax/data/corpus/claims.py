"""A piece of work that one process at a time does, while others take the next one."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from simcse_jax.data.corpus.stamps import size_of
from simcse_jax.errors import UserError, why
from simcse_jax.host.locks.flock import Taken, open_alone
from simcse_jax.host.locks.store import held_in_store
from simcse_jax.host.storage import Folder, is_remote


@contextlib.contextmanager
def claimed(path: Folder, patient: bool = False) -> Iterator[bool]:
    """Claims the work on `path` for the time of the block; a kill frees it. Yields whether it was free.

    Args:
      path: what is written.
      patient: in a bucket, where nothing is freed by itself: find out whether the one that has it is still alive, which
        takes up to half a minute, rather than take its word.
    """
    lock = path.parent / f".{path.name}.lock"
    with contextlib.ExitStack() as job:
        yield _claim_in_store(job, lock, path, patient) if is_remote(path) else _claim(job, Path(lock))


def _claim(job: contextlib.ExitStack, lock: Path) -> bool:
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        found = open_alone(lock)
    except Taken:
        return False
    except OSError as error:
        raise UserError(f"{lock.parent}: cannot be written: {why(error)}") from None
    if found is None:  # its holder has just ended
        return False
    job.callback(os.close, found[0])
    job.callback(lock.unlink, missing_ok=True)  # first, while it is still this process's
    return True


def _claim_in_store(job: contextlib.ExitStack, lock: Folder, path: Folder, patient: bool) -> bool:
    if not patient and size_of(lock) is not None:
        return False
    try:
        job.enter_context(held_in_store(lock, path))
    except UserError:
        if size_of(lock) is not None:  # another's
            return False
        raise
    return True
