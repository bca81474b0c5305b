"""How a file gets its name: whole, once what is written is on the disk."""

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from simcse_jax.data.corpus.shards import TEXT
from simcse_jax.data.corpus.stamps import PIECE
from simcse_jax.errors import UserError, why
from simcse_jax.host.storage import Folder, is_remote

LEFTOVERS = ".shard-*.tmp*"  # what killed processes may leave


@contextlib.contextmanager
def written_to(path: Folder, texts: bool) -> Iterator[Path]:
    """A file to write to, which gets its name, or is copied to its bucket, after the block; its texts too."""
    endings = ("", TEXT) if texts else ("",)
    with contextlib.ExitStack() as job:
        if is_remote(path):
            temporary = Path(job.enter_context(tempfile.TemporaryDirectory())) / path.name
        else:
            temporary = temporary_of(Path(path))
            for ending in ("", TEXT, f"{TEXT}.body"):
                job.callback(Path(f"{temporary}{ending}").unlink, missing_ok=True)
        try:
            yield temporary
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {why(error)}") from None
        try:
            for ending in reversed(endings):
                written, target = Path(f"{temporary}{ending}"), path.parent / (path.name + ending)
                if is_remote(path):
                    _upload(written, target)
                else:
                    put_in_place(written, Path(target))
        except Exception as error:  # an OSError, or an error of a store's client
            raise UserError(f"{path}: cannot be written: {why(error)}") from None


def _upload(written: Path, target: Folder) -> None:
    """Copies a file into a bucket, whole or not at all.

    An object that is opened to write would appear with the part that was written, if an error ends the block.
    """
    import fsspec

    fsspec.filesystem("gcs").put_file(str(written), str(target), chunksize=PIECE)


def temporary_of(path: Path) -> Path:
    """The name of a file while it is written: no other process's, since not every disk that several share has locks."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def put_in_place(written: Path, path: Path) -> None:
    """Gives a file, which is on the disk, its name, and waits until the name is on the disk too.

    Raises:
      OSError: when it cannot be moved.
    """
    written.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # of a disk that cannot wait for folders
            raise
    finally:
        os.close(folder)


def remove_leftovers(folder: Folder, pattern: str = LEFTOVERS) -> None:
    """Removes what killed processes were writing; all that the folder needs is there."""
    if not is_remote(folder):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
