"""Files and folders on a disk or in an object store (`gs://…`), written whole or not at all; JSON; fingerprints."""

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import stat
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import numpy as np
from etils import epath

from simcse_jax.errors import UserError, broken, reason, require, system_message
from simcse_jax.host.flock import Taken, open_alone
from simcse_jax.host.version import __version__

STORE = ("storage.googleapis.com", 443)

Folder: TypeAlias = Path | epath.Path

HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")  # a surrogate's escape in JSON
READER_SECONDS = 20  # that a pipe waits for its reader


class FolderLock(Protocol):
    """This job's lock of a folder in a store (`locks.StoredLock`), which another job may take over."""

    folder: Folder

    def check(self) -> None:
        """Raises a `UserError` if another job has taken it over."""

    def write(self, path: Folder, content: bytes | Path) -> None:
        """Writes an object of the folder, given its content or a file; raises as `check`."""

    def remove(self, path: Folder) -> None:
        """Removes an object of the folder, if there is one; raises as `check`."""


folder_locks: list[FolderLock] = []  # those that this process has


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
        _check_network(name)
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


def _check_network(name: str) -> None:
    """Finds in seconds that there is no network: the store's client tries for more than a minute.

    An emulator and a proxy are left to the client.
    """
    if os.environ.get("STORAGE_EMULATOR_HOST") or urllib.request.getproxies().get("https"):
        return
    try:
        socket.create_connection(STORE, timeout=5).close()
    except OSError as error:
        raise UserError(f"{name}: cannot be reached: {STORE[0]}: {system_message(error)}") from None


def look_up_bucket(folder: Folder) -> None:
    """Looks up the bucket as Orbax does before it deletes a checkpoint: a missing right shows now, not hours later."""
    from google.cloud import storage

    storage.Client().get_bucket(str(folder).removeprefix("gs://").split("/")[0])


def check_lock(path: Folder) -> None:
    """Raises a `UserError` if this process had the lock of the path's folder, and another job has taken it over."""
    if (lock := lock_of(path)) is not None:
        lock.check()


def lock_of(path: Folder) -> FolderLock | None:
    """This process's lock of the folder in a store that a path is in, the last one taken; None if it has none."""
    return next((lock for lock in reversed(folder_locks) if path.is_relative_to(lock.folder)), None)


@contextlib.contextmanager
def writing(where: object) -> Iterator[None]:
    """Reports an error of the system in the block as one of writing to `where`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{where}: cannot be written: {system_message(error)}") from None


def write_atomically(path: Folder, content: str | bytes) -> None:
    """Writes a file whole or not at all; its folder is created if it does not exist.

    A file that is replaced keeps its mode. A link stays, and the file that it points to is replaced. A device or a pipe
    is written into. Half of a surrogate pair, as in a path that is not UTF-8, becomes an escape, as JSON has it. An
    object in a folder whose lock this process had, and lost, is left as it is.

    Raises:
      UserError: when it cannot be written, or another job has taken the lock over.
    """
    data = _encoded(content)
    if (lock := lock_of(path)) is not None:
        lock.write(path, data)
        return
    try:
        if is_remote(path):  # an object appears once it is complete, and needs no folder
            path.write_bytes(data)
        elif is_stream(path):
            _write_into(path, data)
        else:
            with replacing_file(path) as file:
                file.write(data)
    except Exception as error:  # an OSError, or an error of a store's client
        raise UserError(f"{path}: cannot be written: {system_message(error)}") from None


def remove(path: Folder) -> None:
    """Removes a file or an object, if there is one; refuses, as `write_atomically`, after a lock was lost."""
    try:
        if (lock := lock_of(path)) is not None:
            lock.remove(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be removed ({error.strerror or error})") from None


def write_together(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes several files like `write_atomically`; if one cannot be written, none is replaced.

    `files`: contents by name; the last one is the last to be replaced.
    """
    path = folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as replaced:
            for name, content in reversed(list(files.items())):
                path = folder / name
                if is_stream(path):
                    _write_into(path, _encoded(content))
                    continue
                file = replaced.enter_context(replacing_file(path))
                file.write(_encoded(content))
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {system_message(error)}") from None


def _encoded(content: str | bytes) -> bytes:
    return content.encode(errors="backslashreplace") if isinstance(content, str) else content


def is_stream(path: Folder) -> bool:
    """Whether the path is written to, not replaced: a device, a pipe, or a descriptor such as /dev/stdout."""
    return own_descriptor(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def own_descriptor(path: Folder) -> int | None:
    """The number N of this process's descriptor with this name: /proc/self/fd/N, /dev/stdout, a link to one."""
    name = os.fspath(path)
    for _ in range(40):  # as many links as the system follows
        folder, last = os.path.split(name)
        if re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd|/dev/fd", os.path.realpath(folder)) and last.isdecimal():
            return int(last)
        if not os.path.islink(name):
            break
        name = os.path.join(folder, os.readlink(name))
    return None


def _write_into(path: Folder, data: bytes) -> None:
    descriptor = own_descriptor(path)
    for printed in (sys.stdout, sys.stderr):  # what was printed comes first
        if printed is not None:
            printed.flush()
    # A duplicate continues where the descriptor stands; its name would begin a file again.
    with open(_open_stream(path) if descriptor is None else os.dup(descriptor), "wb") as file:
        file.write(data)


def _open_stream(path: Folder) -> int:
    until = time.monotonic() + READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # otherwise it waits for a reader without end
            os.set_blocking(descriptor, True)
            return descriptor
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, "nothing reads the pipe") from None
        time.sleep(0.05)


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file to write to, which replaces `path` and takes its mode after the block; links are followed.

    Its folder is created if it does not exist.

    After an error, `path` is unchanged and nothing else is left.

    Raises:
      OSError: when it cannot be written.
    """
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")  # see `hidden`
    with _open_alone(temporary) as file:  # until it has its final name
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def _open_alone(temporary: Path) -> IO[bytes]:
    """Opens a file for writing that no other process writes; a killed one may have left it."""
    while True:
        if temporary.is_symlink():  # it would lead to another file
            temporary.unlink()
        try:
            opened = open_alone(temporary)
        except Taken:
            raise OSError(errno.EBUSY, "another process is writing it") from None
        if opened is not None:  # otherwise another process has just given it its final name
            file = open(temporary, "r+b", opener=lambda *_, descriptor=opened[0]: descriptor)
            file.truncate(0)
            return file


def replace(new: Path, path: Path) -> None:
    """Moves the file `new` to `path`; it takes the mode, and where possible the owner, of the file that was there.

    Raises:
      OSError: when it cannot be moved.
    """
    if path.exists():
        before, now = path.stat(), new.stat()
        if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
            with contextlib.suppress(PermissionError):  # only root may give a file away
                os.chown(new, before.st_uid, before.st_gid)
        if before.st_mode != now.st_mode:
            os.chmod(new, stat.S_IMODE(before.st_mode))
    try:
        os.replace(new, path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        shutil.copyfile(new, path)  # a mount point, as of a container's file, can be written but not replaced
        new.unlink()


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
