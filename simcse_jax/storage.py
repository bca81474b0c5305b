"""Files and folders on a disk or in an object store (`gs://…`), written whole or not at all; JSON; fingerprints."""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from etils import epath

from simcse_jax.errors import UserError, reason

Folder: TypeAlias = Path | epath.Path

HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")  # a surrogate's escape in JSON


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


def check_readable(folder: Path) -> None:
    """Refuses a folder that may not be read, or whose name the libraries that read models cannot take.

    Raises:
      UserError: in one line.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(f"{str(folder)!r}: its name is not UTF-8; rename the folder") from None
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise UserError(f"{folder}: cannot be read: Permission denied")


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

        # Otherwise each process keeps its first listing, whatever the others and tensorstore write.
        fsspec.config.conf.setdefault("gs", {})["use_listings_cache"] = False
        found = epath.Path(f"gs://{bucket}").exists()
    except ImportError:
        raise UserError(f"{name}: the package that reads it is missing; pip install 'simcse_jax[gcs]'") from None
    except Exception as error:  # of the store's client: no access, no network
        raise UserError(f"{name}: cannot be reached: {reason(error)}") from None
    if not found:  # the client would create one
        raise UserError(f"{name}: there is no bucket {bucket}, or no right to see it (storage.buckets.get)")
    return epath.Path(name)


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
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or reason(error)}") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None
    return parse_json(text, str(path), kind)


def parse_json(text: str, where: str, kind: type = dict) -> Any:
    """A JSON object (or a list, if `kind` is `list`) from its text.

    Args:
      text: of a whole file or of a line.
      where: the file, or the file and the line, for error messages.
      kind: `dict` or `list`.

    Raises:
      UserError: when the text is something else, is nested too deeply, or has half a character, which nothing can
        print or write.
    """
    try:
        content = json.loads(text)
        if HALF_CHARACTER.search(text):  # perhaps: a pair of them is a character
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise UserError(f"{where}: not valid JSON: nested too deeply") from None
    except UnicodeEncodeError:
        raise UserError(f"{where}: not valid JSON: has half a character (an unpaired \\ud800, say)") from None
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON: {reason(error)}") from None
    if not isinstance(content, kind):
        raise UserError(f"{where}: not a JSON {'object' if kind is dict else kind.__name__}")
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
