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
from typing import Any, NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.host.owner import GuardedFolder, errors_in_store
from simcse_jax.host.storage import Folder, owning

HEARTBEAT = 10.0  # seconds between two renewals
LOST = 30.0  # seconds without one, after which the owner counts as dead
LOOK = 2.0  # seconds between two looks at another job's lock


class Job(NamedTuple):
    """A job: where it runs, what it is, and since when it has the lock."""

    host: str
    process: int
    since: str
    command: str
    token: str  # no other lock has the same

    def text(self) -> str:
        """The contents of the lock."""
        return json.dumps(self._asdict(), indent=2) + "\n"


def this_job() -> Job:
    """This process, from now on."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Job(socket.gethostname(), os.getpid(), now, shlex.join(sys.orig_argv), uuid.uuid4().hex)


def read_job(text: bytes) -> Job | None:
    """The job that wrote a lock; None if the text does not say, e.g. because it was read while it was written."""
    try:
        fields = json.loads(text)
        return Job(**{name: kind(fields[name]) for name, kind in Job.__annotations__.items()})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def describe(owner: Job | None) -> str:
    """The job, for messages."""
    if owner is None:
        return "another process"
    text = f"process {owner.process} on {owner.host}, since {owner.since},"
    return "".join(character if character.isprintable() else "?" for character in text)  # the file may be anybody's


def taken(place: object, owner: Job | None) -> UserError:
    """The error for a second job; it names the first one."""
    return UserError(f"{place}: {describe(owner)} is writing there; wait for its end, or choose another place")


class StoredLock(GuardedFolder):
    """A lock object that this job holds, and the job's way to write to its folder."""

    def __init__(self, path: Folder, place: Folder):
        """Takes the lock at `path`, which protects `place`."""
        super().__init__(path.parent)
        self._name, self._place, self._job = self._name_of(path), place, this_job()
        self._stop = threading.Event()
        self._lost: UserError | None = None
        with errors_in_store(path):
            self._generation = self._take()
        self._thread = threading.Thread(target=self._renew_regularly, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """See `GuardedFolder.check`."""
        if self._lost is None:
            owner = self._read()
            if owner is None or owner.token != self._job.token:
                how = f"has taken over, since this job was not heard of for {LOST:.0f} seconds"
                self._lost = UserError(f"{self._place}: {describe(owner)} {how}")
        if self._lost is not None:
            raise self._lost

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

    def _read(self) -> Job | None:
        """The job that has the lock now."""
        from google.api_core.exceptions import NotFound

        try:
            return read_job(self._bucket.blob(self._name).download_as_bytes())
        except NotFound:
            return None

    def _write(self, generation: int, **options: Any) -> int | None:
        """Writes the lock if its generation is still this one (0: if there is none); None if it is not."""
        from google.api_core.exceptions import PreconditionFailed

        blob = self._bucket.blob(self._name)
        try:
            blob.upload_from_string(self._job.text(), if_generation_match=generation, **options)
        except PreconditionFailed:
            # Or an earlier attempt was successful, and only its answer was lost.
            now, owner = self._bucket.get_blob(self._name), self._read()
            return now.generation if now and owner and owner.token == self._job.token else None
        return blob.generation

    def _renew_regularly(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            with contextlib.suppress(Exception):  # no network for a moment
                generation = self._write(self._generation, timeout=HEARTBEAT, retry=None)
                if generation is None:
                    return  # another job has taken it over, as the next write will find
                self._generation = generation


@contextlib.contextmanager
def held_in_store(path: Folder, place: Folder) -> Iterator[None]:
    """Holds the lock at `path` during the block, and writes to its folder as the lock's owner."""
    with owning(StoredLock(path, place)):
        yield
