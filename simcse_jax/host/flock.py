"""Exclusive file locks by the system's `flock`, which the end of a process frees."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

LONGEST = 1 << 16  # bytes read of a file that another process has locked
WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}  # errors of a disk without locks


class Taken(Exception):
    """Another process has the file; `contents` are its first bytes."""

    def __init__(self, contents: bytes):
        super().__init__("another process has it")
        self.contents = contents


def open_alone(file: Path) -> tuple[int, bool] | None:
    """Opens a file for reading and writing, and locks it; creates it if needed, and does not follow a link.

    The descriptor is closed in new programs.

    Returns:
      The descriptor, and whether the disk has locks; None if the file has just lost its name, so that another try is
      needed: its holder removes or renames it while it still has the lock.

    Raises:
      Taken: when another process has it.
      OSError: when it cannot be opened.
    """
    with contextlib.ExitStack() as unless_kept:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        unless_kept.callback(os.close, descriptor)
        locks = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Taken(os.pread(descriptor, LONGEST, 0)) from None
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
            locks = False
        if not has_name(descriptor, file):
            return None
        unless_kept.pop_all()
        return descriptor, locks


def has_name(descriptor: int, file: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file, follow_symlinks=False))
    except FileNotFoundError:
        return False
