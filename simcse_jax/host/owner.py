"""Which job owns a folder in an object store: the last one that wrote its token there.

A store frees nothing when a process dies. So a job writes a token, the object `.lock`, and from then on the folder is
its own, whoever had it before. Whatever it writes goes through its token: it looks at the object, then at the token,
and writes on condition that the object is still the same. So the earlier job never replaces what the later one wrote,
and ends when it next writes. No clock is compared with another host's.
"""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

from etils import epath

from simcse_jax.errors import UserError, reason

TOKEN = ".lock"
PIECE = 1 << 23  # bytes of a large object that are sent at a time


class Owner:
    """This job as the owner of a folder in a store, until another job writes its own token."""

    def __init__(self, folder: epath.Path):
        """Takes the folder."""
        from google.cloud import storage

        self.folder = folder
        self._token = 0  # the generation of the object `.lock` that this job wrote
        with errors_in_store(folder):
            self._bucket = storage.Client().bucket(str(folder).removeprefix("gs://").partition("/")[0])
        self._token = self.write(folder / TOKEN, uuid.uuid4().hex)

    def check(self) -> None:
        """Checks that the folder is still this job's; passes while this job writes its token.

        Raises:
          UserError: when another job has taken it over.
        """
        if self._token and self._generation_of(self.folder / TOKEN) != self._token:
            raise UserError(f"{self.folder}: another job has taken over")

    def write(self, path: epath.Path, content: str | bytes) -> int:
        """Writes an object of the folder; returns its generation, which only it has.

        Raises:
          UserError: when another job has taken over, or the object cannot be written.
        """
        from google.api_core.exceptions import PreconditionFailed

        blob = self._bucket.blob(self._name_of(path), chunk_size=PIECE)
        with errors_in_store(path):
            while True:
                generation = self._generation_of(path)
                self.check()  # last: who takes over from here on changes what was seen, or writes after this job
                with contextlib.suppress(PreconditionFailed):  # written in between; or an answer was lost
                    blob.upload_from_string(content, if_generation_match=generation)
                    return blob.generation

    def remove(self, path: epath.Path) -> None:
        """Removes an object of the folder, if there is one; otherwise like `write`."""
        from google.api_core.exceptions import NotFound, PreconditionFailed

        blob = self._bucket.blob(self._name_of(path))
        with errors_in_store(path):
            while generation := self._generation_of(path):
                self.check()
                with contextlib.suppress(NotFound, PreconditionFailed):
                    blob.delete(if_generation_match=generation)

    def close(self) -> None:
        """Removes the token if it is still this job's."""
        with contextlib.suppress(Exception):
            self._bucket.blob(self._name_of(self.folder / TOKEN)).delete(if_generation_match=self._token, timeout=60)

    def _generation_of(self, path: epath.Path) -> int:
        """The generation of an object; 0 if there is none."""
        seen = self._bucket.get_blob(self._name_of(path))
        return seen.generation if seen else 0

    def _name_of(self, path: epath.Path) -> str:
        return str(path).removeprefix(f"gs://{self._bucket.name}/")


def upload_once(path: epath.Path, file: Path) -> None:
    """Writes a file to an object, unless there is one of this name already.

    Raises:
      UserError: when it cannot be written.
    """
    from google.api_core.exceptions import PreconditionFailed
    from google.cloud import storage

    bucket, _, name = str(path).removeprefix("gs://").partition("/")
    with errors_in_store(path), contextlib.suppress(PreconditionFailed):
        blob = storage.Client().bucket(bucket).blob(name, chunk_size=PIECE)
        blob.upload_from_filename(str(file), if_generation_match=0)


@contextlib.contextmanager
def errors_in_store(path: epath.Path) -> Iterator[None]:
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
