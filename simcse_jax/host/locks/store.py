"""A lock in an object store: an object that only one job can create, and that its owner renews.

A store frees nothing when a process dies. So the owner writes the object again every `HEARTBEAT` seconds, which gives
it a new generation. A job that finds the object watches it: at a new generation the owner is alive, and the job ends;
after `LOST` seconds without one it takes the lock over, on condition that the generation is still the same, so only one
job can. No clock is compared with another host's.

An owner that was out of reach for so long notices at its next renewal that the generation is not its own. It renews
before each important write, too (`check`).
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from simcse_jax.errors import UserError, reason
from simcse_jax.host.locks.owner import Owner, describe, read_owner, taken, this_job
from simcse_jax.host.storage import Folder

HEARTBEAT = 10.0  # seconds between two renewals
LOST = 30.0  # seconds without one, after which the owner counts as dead
LOOK = 2.0  # seconds between two looks at another job's lock


class StoredLock:
    """A lock object that this job holds."""

    def __init__(self, path: Folder, place: Folder):
        """Takes the lock at `path`, which protects `place`."""
        from google.cloud import storage

        bucket, _, name = str(path).removeprefix("gs://").partition("/")
        self._name, self._place = name, place
        self._path, self._owner, self._renewed = path, this_job(), time.monotonic()
        self._alone = threading.Lock()
        self._stop = threading.Event()
        self._lost: UserError | None = None
        try:
            self._bucket = storage.Client().bucket(bucket)
            self._generation = self._take()
        except UserError:
            raise
        except Exception as error:  # of the store's client
            raise UserError(f"{path}: cannot be written: {_why(error)}") from None
        self._thread = threading.Thread(target=self._renew_regularly, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Renews the lock.

        Raises:
          UserError: when another job has taken it over, or may have, since the store was out of reach for so long.
        """
        try:
            self._renew(timeout=60)
        except UserError:
            raise
        except Exception as error:  # of the store's client; what is written next reports it
            if time.monotonic() > self._renewed + LOST:
                raise UserError(f"{self._path}: cannot be written: {_why(error)}") from None

    def close(self) -> None:
        """Removes the object if it is still this job's."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # another job's, or it is taken over after a while
            self._bucket.blob(self._name).delete(if_generation_match=self._generation, timeout=60)

    def _take(self) -> int:
        seen: tuple[int, float] | None = None  # the generation of another job's, and since when
        while True:
            found = self._bucket.get_blob(self._name)
            if found is None:
                generation = self._write(0)
            elif seen is None:
                owner = self._read(found)
                print(
                    f"{self._place}: {describe(owner)} was writing there; waiting up to {LOST:.0f} seconds to see "
                    "whether it still does",
                    file=sys.stderr,
                    flush=True,
                )
                seen, generation = (found.generation, time.monotonic()), None
            elif found.generation != seen[0]:
                raise taken(self._place, self._read(found))
            elif time.monotonic() > seen[1] + LOST:
                generation = self._write(found.generation)
            else:
                generation = None
            if generation is not None:
                return generation
            time.sleep(LOOK)

    def _read(self, found: Any) -> Owner | None:
        from google.api_core.exceptions import NotFound

        try:
            return read_owner(found.download_as_bytes())
        except NotFound:  # it was renewed or removed just now
            again = self._bucket.get_blob(self._name)
            return read_owner(again.download_as_bytes()) if again else None

    def _write(self, generation: int, **options: Any) -> int | None:
        """Writes the object if its generation is still this one (0: if there is none); None if it is not."""
        from google.api_core.exceptions import PreconditionFailed

        blob = self._bucket.blob(self._name)
        try:
            blob.upload_from_string(self._owner.text(), if_generation_match=generation, **options)
        except PreconditionFailed:
            # Or an earlier attempt was successful, and only its answer was lost.
            now = self._bucket.get_blob(self._name)
            owner = self._read(now) if now else None
            return now.generation if now and owner and owner.token == self._owner.token else None
        return blob.generation

    def _renew(self, **options: Any) -> None:
        with self._alone:
            if self._lost is None:
                generation = self._write(self._generation, **options)
                if generation is None:
                    now = self._bucket.get_blob(self._name)
                    owner = describe(self._read(now) if now else None)
                    self._lost = UserError(
                        f"{self._place}: {owner} has taken over, since this job was not heard of for {LOST:.0f} seconds"
                    )
                else:
                    self._generation, self._renewed = generation, time.monotonic()
            if self._lost is not None:
                raise self._lost

    def _renew_regularly(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            try:
                self._renew(timeout=HEARTBEAT, retry=None)
            except UserError:
                return  # `check` raises it again
            except Exception:  # no network for a moment; `check` reports what lasts
                continue


def _why(error: Exception) -> str:
    try:
        return error.response.json()["error"]["message"]  # type: ignore[attr-defined]
    except (AttributeError, LookupError, TypeError, ValueError):  # not an answer of the store
        return reason(error)


@contextlib.contextmanager
def held_in_store(path: Folder, place: Folder) -> Iterator[Callable[[], None]]:
    """Holds the lock at `path` for the time of the block; yields a function that raises if it was lost."""
    lock = StoredLock(path, place)
    try:
        yield lock.check
    finally:
        lock.close()
