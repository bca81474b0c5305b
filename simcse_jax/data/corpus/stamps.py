"""What sources and files are known by, without reading all of them, and their hashes."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.data.examples import PREFIXED, prefix_of, source_path
from simcse_jax.errors import UserError, why
from simcse_jax.host.storage import Folder, is_remote

PIECE = 1 << 23  # bytes read at a time to copy a file


class Stamp(NamedTuple):
    """What is known of a source before it is read."""

    bytes: int  # 0 for one that is no file
    written: str  # when a file was written; the version of a dataset


def stamp_of(source: str) -> Stamp:
    """The stamp of a source."""
    if prefix := prefix_of(source):
        return Stamp(0, PREFIXED[prefix].version(source.removeprefix(prefix)))
    path = source_path(source)
    try:
        status: Any = path.stat()
    except Exception as error:  # an OSError, or an error of a store's client
        raise UserError(f"{source}: cannot be read: {why(error)}") from None
    if is_remote(path):
        return Stamp(status.length, str(status.mtime))
    return Stamp(status.st_size, str(status.st_mtime_ns))


def size_of(path: Folder) -> int | None:
    """The bytes of a file, or of an object in a bucket; None if there is none."""
    try:
        status: Any = path.stat()
    except FileNotFoundError:
        return None
    except Exception as error:  # an OSError, or an error of a store's client
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
    return int(status.length if is_remote(path) else status.st_size)


def hash_file(path: Path) -> str:
    """SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
