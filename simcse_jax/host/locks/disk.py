"""A lock on a disk: `flock` on a small file that says who has it.

The system frees the lock when the process ends, however it ends. The file may stay after a kill; the next job takes it
over. At the end its holder removes it while it still has the lock, so another process may lock a file that has just
lost its name. Therefore each one looks, once it has the lock, whether the file still has its name, and if not, begins
again. A process started from here does not keep the lock: the descriptor is closed in forks and in new programs.

On NFS the lock holds between hosts. A disk without locks is used without one, with a warning.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from simcse_jax.errors import UserError, why
from simcse_jax.host.locks.flock import Taken, has_name, open_alone
from simcse_jax.host.locks.owner import read_owner, taken, this_job

ATTEMPTS = 100
_open: set[int] = set()  # the descriptors of the locks that this process has


def _close_in_child() -> None:
    for descriptor in _open:
        with contextlib.suppress(OSError):
            os.close(descriptor)  # does not free it: the parent has the same open file
    _open.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def held_on_disk(file: Path, place: Path) -> Iterator[None]:
    """Holds the lock `file` for the time of the block; `place`, what it protects, is for messages.

    The file's folder is made if it does not exist.
    """
    with _errors_of(file, place):
        descriptor = _take(file, place)
    _open.add(descriptor)
    try:
        with _errors_of(file, place):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, this_job().text().encode())
        yield
    finally:
        if descriptor in _open:  # not in a fork
            with contextlib.suppress(OSError):
                if has_name(descriptor, file):
                    file.unlink()
            _open.discard(descriptor)
            os.close(descriptor)


@contextlib.contextmanager
def _errors_of(file: Path, place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{place}: cannot be written: {file.name}: {why(error)}") from None


def _take(file: Path, place: Path) -> int:
    for attempt in range(ATTEMPTS):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            found = open_alone(file)
        except Taken as other:
            raise taken(place, read_owner(other.contents)) from None
        except FileNotFoundError:  # the folder was removed just now
            if attempt == ATTEMPTS - 1:
                raise
            continue
        if found is None:
            continue
        descriptor, has_locks = found
        if not has_locks:
            text = f"{file.parent}: a disk without locks; make sure that no other job writes there"
            print(f"warning: {text}", file=sys.stderr, flush=True)
        return descriptor
    raise taken(place, None)  # one short job after the other has it
