"""Files and folders on a disk or in an object store (`gs://…`), written whole or not at all; JSON; fingerprints."""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from etils import epath

from simcse_jax.errors import UserError, reason

STORE = ("storage.googleapis.com", 443)

Folder: TypeAlias = Path | epath.Path


def is_remote(path: Folder | str) -> bool:
    """Whether the path is in an object store."""
    return "://" in str(path)


def local_path(name: str | Path) -> Path:
    """The path with this name, `~` expanded; it need not exist.

    Raises:
      UserError: when it can be no path: it is too long, or `~NAME` is no user.
    """
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{str(name)!r:.60}: not a path: {getattr(error, 'strerror', None) or reason(error)}") from None
    return path


def output_file(name: str) -> Path:
    """The file of `--output`.

    Raises:
      UserError: when it is a folder, or its folder does not exist.
    """
    path = local_path(name)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UserError(f"--output {name}: must be a file in a folder that exists")
    return path


def output_folder(name: str, option: str = "--output") -> Path:
    """The folder of an option, created if it does not exist.

    Raises:
      UserError: when it is a file, in an object store, or not writable.
    """
    if is_remote(name):
        raise UserError(f"{option} {name}: must be a folder on a disk")
    folder = local_path(name)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{option} {name}: is a file; it must be a folder (a new one is created)")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} {name}: cannot be made: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{option} {name}: cannot be written to")
    return folder


def as_path(name: str) -> Folder:
    """The folder with this name, on a disk or in a store; it need not exist.

    Raises:
      UserError: when it is in an object store that cannot be reached.
    """
    if not is_remote(name):
        return local_path(name)
    scheme, _, rest = name.partition("://")
    bucket = rest.split("/")[0]
    if scheme != "gs" or not bucket:
        raise UserError(f"{name}: must be a folder on a disk or gs://BUCKET/FOLDER")
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it also raises its errors, and we report those
    try:
        import fsspec
        import gcsfs  # noqa: F401 - missing packages come before a missing network

        _check_network(name)
        # Otherwise each process keeps its first listing, whatever the others and tensorstore write.
        fsspec.config.conf.setdefault("gs", {})["use_listings_cache"] = False
        found = epath.Path(f"gs://{bucket}").exists()
    except ImportError:
        raise UserError(f"{name}: the package that reads it is missing; pip install 'simcse_jax[gcs]'") from None
    except UserError:
        raise
    except Exception as error:  # of the store's client: no access, no network
        raise UserError(f"{name}: cannot be reached: {reason(error)}") from None
    if not found:  # the client would create one
        raise UserError(f"{name}: there is no bucket {bucket}, or no right to see it (storage.buckets.get)")
    return epath.Path(name)


def _check_network(name: str) -> None:
    """Finds in seconds that there is no network: the store's client tries for more than a minute.

    Raises:
      UserError: when Google's storage cannot be connected to. An emulator and a proxy are left to the client.
    """
    if os.environ.get("STORAGE_EMULATOR_HOST") or urllib.request.getproxies().get("https"):
        return
    try:
        socket.create_connection(STORE, timeout=5).close()
    except OSError as error:
        raise UserError(f"{name}: cannot be reached: {STORE[0]}: {error.strerror or reason(error)}") from None


def look_up_bucket(folder: Folder) -> None:
    """Looks up the bucket as Orbax does before it deletes a checkpoint: a missing right shows now, not hours later."""
    from google.cloud import storage

    storage.Client().get_bucket(str(folder).removeprefix("gs://").split("/")[0])


def write_atomically(path: Folder, content: str | bytes) -> None:
    """Writes a file whole or not at all; its folder is created if it does not exist.

    Raises:
      UserError: when the disk is full or the folder is not writable.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if is_remote(path):  # an object appears once it is complete, and needs no folder
            path.write_bytes(data)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except Exception as error:  # an OSError, or an error of a store's client
        raise UserError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or reason(error)}") from None


@contextlib.contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to write to, which replaces `folder` after the block.

    After an error in the block, `folder` is unchanged. Its old contents are in `.NAME.old` for a moment; if the process
    is killed then, they stay there until the next call.

    Raises:
      OSError: when a folder cannot be made or renamed.
    """
    temporary, earlier = (folder.parent / f".{folder.name}.{kind}" for kind in ("new", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(earlier, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        if folder.exists():
            os.rename(folder, earlier)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if earlier.exists() and not folder.exists():
            os.rename(earlier, folder)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def read_json(path: Path, kind: type = dict) -> Any:
    """A JSON object (or a list, if `kind` is `list`) from a file.

    Raises:
      UserError: when the file cannot be read or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or reason(error)}") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(content, kind):
        raise UserError(f"{path}: not a JSON {'object' if kind is dict else kind.__name__}")
    return content


def write_json(path: Path, content: dict | list) -> None:
    """Writes JSON, indented, with a final newline."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def sha256(*arrays: np.ndarray) -> str:
    """A fingerprint of the arrays' shapes, types and contents."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
