"""Exclusive locks: one job at a time writes to a run's folder, an index, a sweep, an exported model or a file.

A job that writes takes the lock of the place first, and keeps it to its end; a second job ends at once, and names the
first one. Readers take no lock: what they read is replaced in one piece.

The lock of a folder that is written to for a long time is the file `.lock` in it. So it is the same lock under each of
the folder's names, and under the mount points of several containers. The lock of what is replaced as a whole, a file
or an exported folder, is `.NAME.lock` next to it. Neither exists when no job runs, unless one was killed. Of several
processes that are joined to one job, only the first one takes it.

On a disk it is `flock` on a small file that names its holder. The system frees the lock when the process ends, however
it ends. The file may stay after a kill; the next job takes it over. Its holder removes it before it frees the lock, so
another process may lock a file that has just lost its name: each checks the name once it has the lock, and begins again
if it is gone. A process started from here does not keep the lock: the descriptor is closed in forks and in new
programs. On NFS the lock holds between hosts. A disk without locks is used without one, with a warning.

In an object store it is an object that only one job can create, and that its owner renews: a store frees nothing when a
process dies. The owner writes the object again every `HEARTBEAT` seconds, which gives it a new generation. A job that
finds the object watches it: at a new generation the owner is alive, and the job ends; after `LOST` seconds without one
it takes the lock over, on condition that the generation is still the same, so only one job can. No clock is compared
with another host's.

An owner that stood still or was out of reach for so long finds another job's lock, or none, before it next writes, and
ends. All that it writes (`storage.write_atomically`) goes through its lock: it looks at the object, then at the lock,
and writes on condition that the object is still the same (`StoredLock.write`). So it never replaces what a later owner
wrote.
"""

import contextlib
import ctypes
import errno
import json
import os
import shlex
import shutil
import socket
import stat
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, reason, system_message
from simcse_jax.host.flock import Taken, has_name, open_alone
from simcse_jax.host.storage import Folder, folder_locks, is_remote

ATTEMPTS = 100
_open: set[int] = set()  # the descriptors of the locks that this process has
HEARTBEAT = 10.0  # seconds between two renewals
LOST = 30.0  # seconds without one, after which the owner counts as dead
LOOK = 2.0  # seconds between two looks at another job's lock
LOCK = ".lock"  # in a folder, and at the end of the name next to something
PIECE = 1 << 23  # bytes of a file that are sent at a time
_mine: set[tuple[str, int]] = set()  # files of locks, and the threads of this process that have them
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2
CANNOT_SWAP = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
WAIT_SECONDS = 5.0  # for a job that is replacing the folder right now


class Owner(NamedTuple):
    """A job: where it runs, what it is, and since when it has the lock."""

    host: str
    process: int
    since: str
    command: str
    token: str  # no other lock has the same

    def text(self) -> str:
        """The contents of the lock."""
        return json.dumps(self._asdict(), indent=2) + "\n"


def this_job() -> Owner:
    """This process, from now on."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Owner(socket.gethostname(), os.getpid(), now, shlex.join(sys.orig_argv), uuid.uuid4().hex)


def read_owner(text: bytes) -> Owner | None:
    """The job that wrote a lock; None if the text does not say, e.g. because it was read while it was written."""
    try:
        fields = json.loads(text)
        return Owner(**{name: kind(fields[name]) for name, kind in Owner.__annotations__.items()})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def describe(owner: Owner | None) -> str:
    """The job, for messages."""
    if owner is None:
        return "another process"
    text = f"process {owner.process} on {owner.host}, since {owner.since},"
    return "".join(character if character.isprintable() else "?" for character in text)  # the file may be anybody's


def taken(place: object, owner: Owner | None) -> UserError:
    """The error for a second job; it names the first one."""
    return UserError(f"{place}: {describe(owner)} is writing there; wait for its end, or choose another place")


def _close_in_child() -> None:
    for descriptor in _open:
        with contextlib.suppress(OSError):
            os.close(descriptor)  # does not free it: the parent has the same open file
    _open.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextlib.contextmanager
def held_on_disk(file: Path, place: Path) -> Iterator[None]:
    """Holds the lock `file` during the block; `place`, what it protects, is for messages.

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
        raise UserError(f"{place}: cannot be written: {file.name}: {system_message(error)}") from None


def _take(file: Path, place: Path) -> int:
    for attempt in range(ATTEMPTS):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = open_alone(file)
        except Taken as other:
            raise taken(place, read_owner(other.contents)) from None
        except FileNotFoundError:  # the folder was removed just now
            if attempt == ATTEMPTS - 1:
                raise
            continue
        if lock is None:
            continue
        descriptor, has_locks = lock
        if not has_locks:
            text = f"{file.parent}: a disk without locks; make sure that no other job writes there"
            print(f"warning: {text}", file=sys.stderr, flush=True)
        return descriptor
    raise taken(place, None)  # one short job after the other has it


class StoredLock:
    """A lock object that this job holds, and the job's way to write to its folder (`storage.FolderLock`)."""

    def __init__(self, path: Folder, place: Folder):
        """Takes the lock at `path`, which protects `place`."""
        from google.cloud import storage

        self.folder = path.parent
        self._path, self._place, self._owner = path, place, this_job()
        self._stop = threading.Event()
        self._lost: UserError | None = None
        with _errors_in_store(path):
            self._bucket = storage.Client().bucket(str(path).removeprefix("gs://").partition("/")[0])
            self._name = self._name_of(path)
            self._generation = self._take()
        self._thread = threading.Thread(target=self._renew_regularly, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Checks that the lock is still this job's.

        Raises:
          UserError: when another job has taken it over.
        """
        if self._lost is None:
            owner = self._read()
            if owner is None or owner.token != self._owner.token:
                how = f"has taken over, since this job was not heard of for {LOST:.0f} seconds"
                self._lost = UserError(f"{self._place}: {describe(owner)} {how}")
        if self._lost is not None:
            raise self._lost

    def write(self, path: Folder, content: bytes | Path) -> None:
        """Writes an object of the folder, given its content or a file.

        Raises:
          UserError: when another job has taken the lock over, or the object cannot be written.
        """
        from google.api_core.exceptions import PreconditionFailed

        blob = self._bucket.blob(self._name_of(path), chunk_size=PIECE)
        with _errors_in_store(path):
            while True:
                generation = self._seen(blob.name)
                with contextlib.suppress(PreconditionFailed):  # written in between; or an answer was lost
                    if isinstance(content, Path):
                        blob.upload_from_filename(str(content), if_generation_match=generation)
                    else:
                        blob.upload_from_string(content, if_generation_match=generation)
                    return

    def remove(self, path: Folder) -> None:
        """Removes an object of the folder, if there is one; otherwise like `write`."""
        from google.api_core.exceptions import NotFound, PreconditionFailed

        blob = self._bucket.blob(self._name_of(path))
        with _errors_in_store(path):
            while generation := self._seen(blob.name):
                with contextlib.suppress(NotFound, PreconditionFailed):
                    blob.delete(if_generation_match=generation)

    def _name_of(self, path: Folder) -> str:
        return str(path).removeprefix(f"gs://{self._bucket.name}/")

    def _seen(self, name: str) -> int:
        """The generation of an object while the lock was this job's; 0 if there is none."""
        seen = self._bucket.get_blob(name)
        self.check()  # last: whoever takes over from here on changes what was seen, or comes after this job's write
        return seen.generation if seen else 0

    def close(self) -> None:
        """Removes the object if it is still this job's."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # another job's, or it is taken over after a while
            self._bucket.blob(self._name).delete(if_generation_match=self._generation, timeout=60)

    def _take(self) -> int:
        seen: tuple[int, float] | None = None  # the generation of another job's, and since when
        while True:
            blob, generation = self._bucket.get_blob(self._name), None
            if blob is None:
                generation = self._write(0)
            elif seen is None:
                seen = blob.generation, time.monotonic()
                note = f"was writing there; waiting up to {LOST:.0f} seconds to see whether it still does"
                print(f"{self._place}: {describe(self._read())} {note}", file=sys.stderr, flush=True)
            elif blob.generation != seen[0]:
                raise taken(self._place, self._read())
            elif time.monotonic() > seen[1] + LOST:
                generation = self._write(blob.generation)
            if generation is not None:
                return generation
            time.sleep(LOOK)

    def _read(self) -> Owner | None:
        """The job that has the lock now."""
        from google.api_core.exceptions import NotFound

        try:
            return read_owner(self._bucket.blob(self._name).download_as_bytes())
        except NotFound:
            return None

    def _write(self, generation: int, **options: Any) -> int | None:
        """Writes the lock if its generation is still this one (0: if there is none); None if it is not."""
        from google.api_core.exceptions import PreconditionFailed

        blob = self._bucket.blob(self._name)
        try:
            blob.upload_from_string(self._owner.text(), if_generation_match=generation, **options)
        except PreconditionFailed:
            # Or an earlier attempt was successful, and only its answer was lost.
            now, owner = self._bucket.get_blob(self._name), self._read()
            return now.generation if now and owner and owner.token == self._owner.token else None
        return blob.generation

    def _renew_regularly(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            with contextlib.suppress(Exception):  # no network for a moment
                generation = self._write(self._generation, timeout=HEARTBEAT, retry=None)
                if generation is None:
                    return  # another job has taken it over, as the next write will find
                self._generation = generation


@contextlib.contextmanager
def _errors_in_store(path: Folder) -> Iterator[None]:
    """Reports the errors of the store's client as ones of writing to `path`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}: cannot be written: {_why(error)}") from None


def _why(error: Exception) -> str:
    try:
        return error.response.json()["error"]["message"]  # type: ignore[attr-defined]
    except (AttributeError, LookupError, TypeError, ValueError):  # not an answer of the store
        return reason(error)


@contextlib.contextmanager
def held_in_store(path: Folder, place: Folder) -> Iterator[None]:
    """Holds the lock at `path` during the block, and writes to its folder as the lock's owner."""
    with contextlib.closing(StoredLock(path, place)) as lock:
        folder_locks.append(lock)
        try:
            yield
        finally:
            folder_locks.remove(lock)


os.register_at_fork(after_in_child=_mine.clear)


@contextlib.contextmanager
def held(folder: Folder) -> Iterator[None]:
    """Holds the lock of a folder during the block; creates the folder if needed.

    Taking it again within the block, in the same thread, has no effect. In an object store the lock can be lost:
    `storage.write_atomically` and `storage.remove` then refuse to change what is in the folder.

    Raises:
      UserError: when another job has it, which the message names, or the folder cannot be written to.
    """
    if is_remote(folder):
        with held_in_store(folder / LOCK, folder):
            yield
    else:
        with _held(Path(folder) / LOCK, Path(folder)):
            yield


@contextlib.contextmanager
def held_next_to(path: Path) -> Iterator[None]:
    """Holds the lock of a file or a folder that is replaced as a whole; otherwise like `held`.

    The lock of a link is that of its target.
    """
    target = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):  # making the lock will say why
        target.parent.mkdir(parents=True, exist_ok=True)
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


def recover(folder: Path) -> None:
    """For readers: restores a folder that is missing because a job was killed while replacing it."""
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
