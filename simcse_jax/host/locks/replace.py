"""A folder that is replaced as a whole."""

import contextlib
import ctypes
import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from simcse_jax.errors import UserError
from simcse_jax.host.locks.lock import held_next_to

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2
CANNOT_SWAP = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
WAIT_SECONDS = 5.0  # for a job that is replacing the folder right now


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to write to, which replaces `folder` after the block.

    After an error in the block, `folder` is unchanged. Where the system can swap two folders in one step, a kill leaves
    the earlier contents or the new ones under the name, never neither. Elsewhere there is a moment without the folder,
    and a kill then leaves the earlier contents in `.NAME.old`; `recover` and the next call put them back.

    Raises:
      OSError: when a folder cannot be made or renamed.
    """
    with held_next_to(folder):
        temporary, earlier = _next_to(folder, "new"), _next_to(folder, "old")
        if not folder.exists() and earlier.is_dir():
            os.rename(earlier, folder)
        for left in (temporary, earlier):  # by a kill
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            _replace(folder, temporary, earlier)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # after a swap it has the earlier contents
            if folder.exists():
                shutil.rmtree(earlier, ignore_errors=True)


def recover(folder: Path) -> None:
    """For readers: puts a folder back that is missing because a job was killed while it replaced it."""
    earlier, end = _next_to(folder, "old"), time.monotonic() + WAIT_SECONDS
    while not os.path.lexists(folder) and os.path.isdir(earlier):
        try:
            with held_next_to(folder):
                if not os.path.lexists(folder):
                    os.rename(earlier, folder)
        except (UserError, OSError) as error:
            if time.monotonic() > end:
                raise UserError(f"{folder}: missing; what was there is in {earlier} ({error})") from None
            time.sleep(0.1)


def _next_to(folder: Path, kind: str) -> Path:
    return folder.parent / f".{folder.name}.{kind}"


def _replace(folder: Path, new: Path, earlier: Path) -> None:
    if not folder.exists():
        os.rename(new, folder)
    elif not _swap(new, folder):
        os.rename(folder, earlier)
        try:
            os.rename(new, folder)
        except BaseException:
            os.rename(earlier, folder)
            raise


def _swap(one: Path, other: Path) -> bool:
    """Swaps the names of two folders in one step; False where the system or the disk cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # not Linux
        return False
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in CANNOT_SWAP:
        return False
    raise OSError(number, os.strerror(number), str(other))
