"""Files and folders on a disk or in an object store (`gs://…`), written whole or not at all; JSON; fingerprints."""

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from etils import epath

from simcse_jax.errors import UserError, broken, reason, require, system_message
from simcse_jax.host.disk_lock import locked
from simcse_jax.host.owner import Owner, upload_once
from simcse_jax.host.version import __version__

Folder: TypeAlias = Path | epath.Path

HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")  # a surrogate's escape in JSON

folder_locks: list[Owner] = []  # the folders in a store that this process owns


def is_remote(path: Folder | str) -> bool:
    """Whether the path is in an object store."""
    return "://" in str(path)


def is_of_macos(name: str) -> bool:
    """Whether macOS adds a file of this name, which describes a folder's looks or another file."""
    return name == ".DS_Store" or name.startswith("._")


def local_path(name: str | Path) -> Path:
    """The path with this name, `~` expanded; it need not exist, but must be possible."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{str(name)!r:.60}: not a path: {system_message(error)}") from None
    return path


def check_readable(folder: Path) -> None:
    """Refuses a folder that may not be read, or whose name the libraries that read models cannot take."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(f"{str(folder)!r}: its name is not UTF-8; rename the folder") from None
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise UserError(f"{folder}: cannot be read: Permission denied")


def as_path(name: str) -> Folder:
    """The folder with this name, on a disk or in a store; it need not exist."""
    if not is_remote(name):
        return local_path(name)
    scheme, _, rest = name.partition("://")
    bucket = rest.split("/")[0]
    if scheme != "gs" or not bucket:
        raise UserError(f"{name}: must be a folder on a disk or gs://BUCKET/FOLDER")
    for client in ("gcsfs", "fsspec"):  # they also raise their errors, and we report those
        logging.getLogger(client).setLevel(logging.CRITICAL)
    require("gcs", "gcsfs", where=name)
    import fsspec

    try:
        # Otherwise each process keeps its first listing, whatever the others and tensorstore write.
        fsspec.config.conf.setdefault("gs", {})["use_listings_cache"] = False
        exists = epath.Path(f"gs://{bucket}").exists()
    except UserError:
        raise
    except Exception as error:  # of the store's client: no access, no network
        raise UserError(f"{name}: cannot be reached: {reason(error)}") from None
    if not exists:  # the client would create one
        raise UserError(f"{name}: there is no bucket {bucket}, or no permission to see it (storage.buckets.get)")
    return epath.Path(name)


def check_lock(path: Folder) -> None:
    """Raises a `UserError` if this job owned the path's folder in a store, and another one has taken over."""
    if (owner := lock_of(path)) is not None:
        owner.check()


@contextlib.contextmanager
def owning(owner: Owner) -> Iterator[None]:
    """Writes to the folder as its owner during the block; lets it go afterwards."""
    with contextlib.closing(owner):
        folder_locks.append(owner)
        try:
            yield
        finally:
            folder_locks.remove(owner)


def lock_of(path: Folder) -> Owner | None:
    """This job as the owner of the folder in a store that a path is in; None where it is not."""
    return next((owner for owner in reversed(folder_locks) if path.is_relative_to(owner.folder)), None)


@contextlib.contextmanager
def writing(where: object) -> Iterator[None]:
    """Reports an error of the system in the block as one of writing to `where`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{where}: cannot be written: {system_message(error)}") from None


def write_atomically(path: Folder, content: str | bytes) -> None:
    """Writes a file whole or not at all (`replacing_file`), an object, or to /dev/stdout.

    Half of a surrogate pair, as in a path that is not UTF-8, becomes an escape, as JSON has it.

    Raises:
      UserError: when it cannot be written, or another job has taken over the folder in a store.
    """
    data = _encoded(content)
    try:
        if (owner := lock_of(path)) is not None:
            owner.write(path, data)
        elif is_remote(path):  # an object appears once it is complete, and needs no folder
            path.write_bytes(data)
        elif is_stdout(path):
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        else:
            with replacing_file(path) as file:
                file.write(data)
    except UserError:
        raise
    except Exception as error:  # an OSError, or an error of a store's client
        raise UserError(f"{path}: cannot be written: {system_message(error)}") from None


def _encoded(content: str | bytes) -> bytes:
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content


def is_stdout(path: Folder) -> bool:
    """Whether the path is standard output."""
    return str(path) == "/dev/stdout"


def remove(path: Folder) -> None:
    """Removes a file or an object, if there is one; refuses, as `write_atomically`, after another job took over."""
    try:
        if (owner := lock_of(path)) is not None:
            owner.remove(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be removed ({error.strerror or error})") from None


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file to write to, which replaces `path` and takes its mode after the block; links are followed.

    Its folder is created if it does not exist. After an error, `path` is unchanged and nothing else is left.

    Raises:
      UserError: when another job is writing it.
      OSError: when it cannot be written.
    """
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.tmp")  # see `hidden`
    with locked(path.with_name(f".{path.name}.lock"), path):
        temporary.unlink(missing_ok=True)  # a killed job's
        try:
            with open(temporary, "x+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def written_once(path: Folder) -> Iterator[Path]:
    """A file to write to, which gets the name `path` after the block, unless another process was faster.

    Any number of processes may do so, also in a bucket: one file is left, whole. A kill leaves `.NAME.*.tmp` on a disk.

    Raises:
      UserError: when it cannot be written.
    """
    with writing(path), contextlib.ExitStack() as job:
        if is_remote(path):
            temporary = Path(job.enter_context(tempfile.TemporaryDirectory())) / path.name
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(path).with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
            job.callback(temporary.unlink, missing_ok=True)
        yield temporary
        if path.exists():
            return
        if is_remote(path):
            upload_once(path, temporary)
            return
        try:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # before it gets its name, which means that it is whole
            os.link(temporary, path)
        except OSError:
            if not path.exists():  # nor has another process made it, and removed what was left
                temporary.replace(path)  # on a disk without hard links


def replace(new: Path, path: Path) -> None:
    """Moves the file `new` to `path`; it takes the mode of the file that was there."""
    if path.exists():
        os.chmod(new, stat.S_IMODE(path.stat().st_mode))
    os.replace(new, path)


def read_json(path: Path, kind: type = dict) -> Any:
    """A JSON object (or a list, if `kind` is `list`) from a file."""
    try:
        return parse_json(path.read_text(encoding="utf-8"), str(path), kind)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {system_message(error)}") from None
    except ValueError as error:  # also for a name with a NUL
        raise UserError(f"{path}: not valid JSON: {error}") from None


def parse_json(text: str, where: str, kind: type = dict) -> Any:
    """A JSON object (or a list, if `kind` is `list`) from its text.

    Args:
      where: the file, or the file and the line, for error messages.

    Raises:
      UserError: when the text is something else, is nested too deeply, or has half a character, which nothing can
        print or write.
    """
    try:
        content = json.loads(text)
        if HALF_CHARACTER.search(text):  # perhaps: a pair of them is a character
            json.dumps(content, ensure_ascii=False).encode(errors="surrogateescape")  # a file's name may have some
    except RecursionError:
        raise UserError(f"{where}: not valid JSON: nested too deeply") from None
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: {broken(error.object[error.start :])}") from None
    except ValueError as error:
        raise UserError(f"{where}: not valid JSON: {reason(error)}") from None
    if not isinstance(content, kind):
        raise UserError(f"{where}: not a JSON {'object' if kind is dict else kind.__name__}")
    return content


def other_format(where: object, content: Mapping[str, Any], cure: str) -> UserError:
    """The error of a file of ours in a format of another version, which its `versions` name."""
    version = written_by(content) or "of another version"
    return UserError(
        f"{where}: written by simcse_jax {version!s:.40} in a format that {__version__} does not read; {cure}"
    )


def written_by(content: Mapping[str, Any]) -> Any:
    """The version of simcse_jax that wrote a JSON file of ours; None if it does not say."""
    versions = content.get("versions")
    return versions.get("simcse_jax") if isinstance(versions, dict) else None


def write_json(path: Path, content: dict | list) -> None:
    """Writes JSON, indented, with a final newline; refuses NaN and infinities, which JSON lacks."""
    try:
        text = json.dumps(content, indent=2, allow_nan=False)
    except ValueError as error:
        raise UserError(f"{path}: cannot be written: {reason(error)}") from None
    path.write_text(text + "\n", encoding="utf-8")


def sha256(*arrays: np.ndarray) -> str:
    """A fingerprint of the arrays' shapes, types and contents."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
