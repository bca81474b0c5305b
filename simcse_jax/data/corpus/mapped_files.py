"""Parts of many files, memory-mapped as one array.

The parts are mapped one after another into one reserved range of addresses, so rows of any file are gathered in one
operation. No file stays open: ten thousand shards do not need ten thousand descriptors.
"""

import ctypes
import errno
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simcse_jax.errors import UserError

MAP_FIXED, RANDOM, WILL_NEED = 0x10, 1, 3  # the same on Linux and macOS
MAP_ANONYMOUS = mmap.MAP_ANONYMOUS
FAILED = ctypes.c_void_p(-1).value
PAGE = mmap.PAGESIZE
AT_ONCE = 1024  # ranges of a call, the system's limit
PROCESS_MADVISE = 440  # of Linux, on all its architectures
MANY = "the system maps at most vm.max_map_count parts of files; raise it, or prepare fewer and larger sources"

_system = ctypes.CDLL(None, use_errno=True)
_system.mmap.restype = ctypes.c_void_p
_system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_system.syscall.restype = ctypes.c_long
_system.syscall.argtypes = [*[ctypes.c_long] * 2, ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_long] * 2]
_system.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class FileRange(NamedTuple):
    """A part of a file, in bytes; both numbers are multiples of the page's size."""

    path: Path
    start: int
    size: int


class Mapped:
    """The bytes of all parts, one after another."""

    def __init__(self, mapped: Sequence[FileRange]):
        """Maps the parts. The files must be long enough: a read beyond a file's end kills the process."""
        total = max(sum(part.size for part in mapped), PAGE)
        self._base = _map(None, total, 0, mmap.MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "a corpus")
        self._free = weakref.finalize(self, _system.munmap, self._base, total)
        self._free.atexit = False  # a thread may still read
        place = self._base
        for part in mapped:
            if not part.size:
                continue
            try:
                descriptor = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise UserError(f"{part.path}: cannot be read: {error.strerror}") from None
            try:
                fixed = mmap.MAP_SHARED | MAP_FIXED
                _map(place, part.size, mmap.PROT_READ, fixed, descriptor, part.start, str(part.path))
            except UserError:
                self._free()  # perhaps the system's last memory, which the message needs
                raise
            finally:
                os.close(descriptor)
            place += part.size
        # Rows are read in random order: read-ahead would pull in whole files.
        _system.madvise(self._base, total, RANDOM)
        self._bytes = (ctypes.c_uint8 * total).from_address(self._base)

    def array(self, dtype: np.dtype) -> np.ndarray:
        """All bytes as one array, valid as long as this object lives."""
        array: np.ndarray = np.frombuffer(memoryview(self._bytes), dtype)
        array.flags.writeable = False  # a write would kill the process
        return array

    def will_need(self, starts: np.ndarray, ends: np.ndarray) -> None:
        """Asks the system to read these byte ranges from the disk, without waiting.

        This is advice; a system that ignores it reads the bytes when they are used.
        """
        first = starts & -PAGE
        ranges = np.stack([first + self._base, ends - first], axis=1).astype(np.uint64)
        for at in range(0, len(ranges), AT_ONCE):
            if not _advise_together(ranges[at : at + AT_ONCE]):
                for address, size in ranges[at : at + AT_ONCE].tolist():
                    _system.madvise(address, size, WILL_NEED)

    def close(self) -> None:
        """Releases the addresses."""
        self._free()


def _advise_together(ranges: np.ndarray) -> bool:
    """`madvise` for many ranges in one call, ten times as fast as many calls; False if the system lacks it.

    Args:
      ranges: (R, 2) uint64: addresses and sizes.
    """
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        this = os.pidfd_open(os.getpid())
    except OSError:
        return False
    try:
        return int(_system.syscall(PROCESS_MADVISE, this, ranges.ctypes.data, len(ranges), WILL_NEED, 0)) >= 0
    finally:
        os.close(this)


def _map(address: int | None, size: int, protection: int, flags: int, descriptor: int, start: int, name: str) -> int:
    mapped = _system.mmap(address, size, protection, flags, descriptor, start)
    if mapped == FAILED:
        number = ctypes.get_errno()
        advice = "; " + MANY if number == errno.ENOMEM and descriptor >= 0 else ""
        raise UserError(f"{name}: cannot be mapped into memory: {os.strerror(number)}{advice}")
    return int(mapped)
