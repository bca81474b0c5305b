"""Exclusive locks on a disk, which the system frees when a process ends, however it ends."""

import contextlib
import errno
import sys
from collections.abc import Iterator
from pathlib import Path

from simcse_jax.errors import UserError, system_message

WITHOUT_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}  # errors of a disk without locks


@contextlib.contextmanager
def locked(file: Path, place: object) -> Iterator[None]:
    """Holds `file` as this thread's lock during the block; taking it again within the block has no effect.

    Its folder is created if needed. The file is removed after the block; a kill leaves it, for the next job to take.

    Args:
      file: of the lock.
      place: what it protects, for messages.

    Raises:
      UserError: when another job has it, or it cannot be written.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(file, timeout=0, is_singleton=True)
    is_outermost = not lock.is_locked
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        while not file.exists():  # the job before removed it after we had opened it
            lock.release()
            lock.acquire()
    except Timeout:
        raise UserError(f"{place}: another job is writing there; wait for its end, or choose another place") from None
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise UserError(f"{place}: cannot be written: {system_message(error)}") from None
        text = f"{file.parent}: a disk without locks; make sure that no other job writes there"
        print(f"warning: {text}", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if is_outermost and lock.is_locked:  # not in a fork
            with contextlib.suppress(OSError):
                file.unlink()
        lock.release()
