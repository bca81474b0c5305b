"""Claims on blocks of embeddings in an object store, for `bulk.embeddings.shared_folder` alone."""

import contextlib
import json
import os
import shlex
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, reason
from simcse_jax.host.storage import Folder, folder_locks

HEARTBEAT = 10.0  # seconds between two renewals
LOST = 30.0  # seconds without one, after which the owner counts as dead
LOOK = 2.0  # seconds between two looks at another job's lock
PIECE = 1 << 23  # bytes of a file that are sent at a time


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
        folder_locks.append(lock)  # type: ignore[arg-type]
        try:
            yield
        finally:
            folder_locks.remove(lock)  # type: ignore[arg-type]
