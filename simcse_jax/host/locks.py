"""One job at a time writes to a run's folder, an index, a sweep, an exported model or a file.

A job that writes takes the lock of the place first, and keeps it to its end. Readers take no lock: what they read is
replaced in one piece. Of several processes that are joined to one job, only the first one takes it.

On a disk (`disk_lock`) a second job is refused. The lock of a folder that is written to for a long time is the file
`.lock` in it, so it is the same under each of the folder's names. The lock of what is replaced as a whole, a file or an
exported folder, is `.NAME.lock` next to it.

In an object store a second job takes over (`owner`).
"""

import contextlib
import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from simcse_jax.host.disk_lock import locked
from simcse_jax.host.owner import Owner
from simcse_jax.host.storage import Folder, is_remote, owning

LOCK = ".lock"  # in a folder, and at the end of the name next to something
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2
CANNOT_SWAP = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


@contextlib.contextmanager
def held(folder: Folder) -> Iterator[None]:
    """Makes this job the one that writes to a folder during the block; creates the folder if needed.

    On a disk, taking it again within the block, in the same thread, has no effect. In an object store another job may
    take over: `storage.write_atomically` and `storage.remove` then refuse to change what is in the folder.

    Raises:
      UserError: when another job has it, on a disk; or the folder cannot be written to.
    """
    if not is_remote(folder):
        with locked(Path(os.path.realpath(folder)) / LOCK, folder):
            yield
        return
    with owning(Owner(folder)):
        yield


@contextlib.contextmanager
def held_next_to(path: Path) -> Iterator[None]:
    """Holds the lock of a file or a folder that is replaced as a whole; otherwise like `held`.

    The lock of a link is that of its target.
    """
    target = Path(os.path.realpath(path))
    with locked(target.with_name(f".{target.name}{LOCK}"), path):
        yield


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to write to, which replaces `folder` after the block.

    After an error in the block, `folder` is unchanged. Where the system can swap two folders in one step, a kill leaves
    the earlier contents or the new ones under the name, never neither. Elsewhere there is a moment without the folder,
    and a kill then leaves the earlier contents in `.NAME.old`; the next call puts them back.

    Raises:
      OSError: when a folder cannot be made or renamed.
    """
    with held_next_to(folder):
        temporary, earlier = (folder.with_name(f".{folder.name}.{kind}") for kind in ("new", "old"))
        if not folder.exists() and earlier.is_dir():
            os.rename(earlier, folder)
        for leftover in (temporary, earlier):  # by a kill
            shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir()
        try:
            yield temporary
            if folder.exists():
                os.chmod(temporary, stat.S_IMODE(folder.stat().st_mode))  # who may read it does not change
            _replace(folder, temporary, earlier)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # after a swap it has the earlier contents
            if folder.exists():
                shutil.rmtree(earlier, ignore_errors=True)


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


def _swap(first: Path, second: Path) -> bool:
    """Swaps the names of two folders in one step; False where the system or the disk cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # not Linux
        return False
    if rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in CANNOT_SWAP:
        return False
    raise OSError(number, os.strerror(number), str(second))
