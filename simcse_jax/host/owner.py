"""Which job owns a folder in an object store: the last one that wrote its token there.

A store frees nothing when a process dies. So a job writes a token, the object `.lock`, and from then on the folder is
its own, whoever had it before. Whatever it writes goes through its token: it looks at the object, then at the token,
and writes on condition that the object is still the same. So the earlier job never replaces what the later one wrote,
and ends when it next writes. No clock is compared with another host's.
"""

import contextlib
import uuid
from collections.abc import Iterator

from etils import epath

from simcse_jax.errors import UserError, reason

TOKEN = ".lock"


class Owner:
    """This job as the owner of a folder in a store, until another job writes its own token."""

    def __init__(self, folder: epath.Path):
        """Takes the folder."""
        from google.cloud import storage

        self.folder = folder
        self._token = 0  # the generation of the object `.lock` that this job wrote
        with _errors_in_store(folder):
            self._bucket = storage.Client().bucket(str(folder).removeprefix("gs://").partition("/")[0])
        self._token = self.write(folder / TOKEN, uuid.uuid4().hex)

    def check(self) -> None:
        """Checks that the folder is still this job's.

        Raises:
          UserError: when another job has taken it over.
        """
        if self._generation(self.folder / TOKEN) != self._token:
            raise UserError(f"{self.folder}: another job has taken over")

    def write(self, path: epath.Path, content: str | bytes) -> int:
        """Writes an object of the folder; returns its generation, which no other version of it has.

        Raises:
          UserError: when another job has taken over, or the object cannot be written.
        """
        from google.api_core.exceptions import PreconditionFailed

        blob = self._bucket.blob(self._name(path))
        with _errors_in_store(path):
            while True:
                generation = self._generation(path)
                if self._token:
                    self.check()  # last: who takes over from here on changes what was seen, or writes after this job
                with contextlib.suppress(PreconditionFailed):  # written in between; or an answer was lost
                    blob.upload_from_string(content, if_generation_match=generation)
                    return blob.generation

    def remove(self, path: epath.Path) -> None:
        """Removes an object of the folder, if there is one; otherwise like `write`."""
        from google.api_core.exceptions import NotFound, PreconditionFailed

        with _errors_in_store(path):
            while generation := self._generation(path):
                self.check()
                with contextlib.suppress(NotFound, PreconditionFailed):
                    self._bucket.blob(self._name(path)).delete(if_generation_match=generation)

    def close(self) -> None:
        """Removes the token if it is still this job's."""
        with contextlib.suppress(Exception):
            self._bucket.blob(self._name(self.folder / TOKEN)).delete(if_generation_match=self._token, timeout=60)

    def _generation(self, path: epath.Path) -> int:
        """The generation of an object; 0 if there is none."""
        seen = self._bucket.get_blob(self._name(path))
        return seen.generation if seen else 0

    def _name(self, path: epath.Path) -> str:
        return str(path).removeprefix(f"gs://{self._bucket.name}/")


@contextlib.contextmanager
def _errors_in_store(path: epath.Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of the store's client
        raise UserError(f"{path}: cannot be written: {reason(error)}") from None
