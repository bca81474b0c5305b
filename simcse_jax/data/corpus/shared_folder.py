"""A folder that several processes fill: its plan, claims on its parts, and files that are whole or absent.

The plan is written first and stays in the folder, so that a part that was lost can be made again. JSON files have
their own hash, so that a damaged one is found before anything is concluded from it.
"""

import contextlib
import errno
import fnmatch
import hashlib
import itertools
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.data.examples import PREFIXED, prefix_of
from simcse_jax.data.rows import reported, size_and_time
from simcse_jax.errors import UserError, system_message
from simcse_jax.host.flock import Taken, open_alone
from simcse_jax.host.hidden import PLAN
from simcse_jax.host.locks import held_in_store
from simcse_jax.host.storage import Folder, as_path, is_of_macos, is_remote, lock_of, parse_json, write_atomically

AT_A_TIME = 32  # sources examined at once
ATTEMPTS = 20  # before a claim in a bucket counts as a dead process's, perhaps
SEAL = "seal"
PIECE = 1 << 23  # bytes read at a time to copy a file
# What killed processes may leave: files that were not finished, and claims on those that were.
LEFTOVER = re.compile(r"\.{1,2}(corpus|embeddings|plan|quantization|rows|shard)[-.].*\.(lock|tmp.*)")


class FolderPlan(NamedTuple):
    """Everything that determines the result, and when the sources were written."""

    key: dict[str, Any]  # its `sources` have a `name` each
    stamps: dict[str, str]  # of sources, by name: `Stamp.written`
    dot: str = ""  # the prefix of the folder's own files, see `host.hidden`

    @property
    def sources(self) -> list[str]:
        """The sources' names."""
        return [source["name"] for source in self.key["sources"]]

    def file(self, folder: Folder, name: str = PLAN) -> Folder:
        """One of the folder's own files, named without the dot; by default the plan itself."""
        return folder / f"{self.dot}{name}"


def enter(folder: Folder, plan: FolderPlan, whose: str, check: Callable[[], object] = lambda: None) -> None:
    """Writes the plan into a new folder, or checks that an existing folder has the same plan.

    Args:
      whose: how the error describes a folder with another plan: "another corpus's".
      check: called before a new folder is started; raises an error to prevent it.
    """
    if read_sealed(plan.file(folder)) is None:
        check()
    for attempt in itertools.count():
        with claimed(folder / PLAN, patient=attempt > ATTEMPTS) as is_free:
            if is_free:
                before = read_sealed(plan.file(folder))
                if before is None:
                    check_own(folder, plan.dot)
                    write_sealed(plan.file(folder), {"key": plan.key, "stamps": plan.stamps})
                else:
                    _compare(folder, before, plan, whose)
                break
        time.sleep(0.1)  # another process has just started it


def check_own(folder: Folder, dot: str) -> None:
    """Refuses a folder that has files but no plan of its kind, whose name begins with `dot`."""
    names = names_in(folder)
    foreign = sorted(name for name in names if not name.startswith((".", f"{PLAN}.")))  # an unfinished plan
    if foreign and f"{dot}{PLAN}" not in names:
        raise UserError(f"--output {folder}: has other files ({foreign[0]}) and no plan; choose another folder")


def check_unchanged(folder: Folder, plan: FolderPlan, sources: Sequence[str] | None = None) -> None:
    """Refuses sources that were changed since the plan was made; by default checks all of them."""
    names = plan.sources if sources is None else sources
    with ThreadPoolExecutor(AT_A_TIME) as threads:  # a bucket answers slowly
        stamps = threads.map(stamp_of, names)
        _compare_stamps(folder, plan.stamps, {name: stamp.written for name, stamp in zip(names, stamps, strict=True)})


def names_in(folder: Folder) -> set[str]:
    """The names of all files in a folder."""
    with reported(folder):
        return {path.name for path in folder.iterdir()}


def leave(folder: Folder, plan: FolderPlan, *notes: str) -> None:
    """Removes the plan and the folder after an error in the data, if nothing was made and nobody else is working there.

    A corrected source counts as a different one, so the folder could not be resumed.

    Args:
      notes: patterns of the folder's own files that are also removed, since they hold no results.
    """
    names = names_in(folder) if folder.is_dir() else set()
    first, *patterns = (plan.file(folder, name).name for name in (PLAN, *notes))
    if first in names and all(
        is_of_macos(name) or any(fnmatch.fnmatch(name, note) for note in (first, *patterns)) for name in names
    ):
        for name in sorted(names, key=lambda name: name == first):  # the plan last
            (folder / name).unlink()
        if not is_remote(folder):
            folder.rmdir()


def _compare(folder: Folder, before: Mapping[str, Any], plan: FolderPlan, whose: str) -> None:
    key, now = before["key"], plan.key
    differing = [name for name in {**now, **key} if key.get(name) != now.get(name)]
    if differing:
        was = "; ".join(_difference(name, key.get(name), now.get(name)) for name in differing)
        raise UserError(f"--output {folder}: is {whose}: {was}; choose another folder")
    _compare_stamps(folder, before["stamps"], plan.stamps)


def _difference(name: str, before: Any, now: Any) -> str:
    """How a field of the key differs; for sources, the first difference."""
    if name != "sources" or not isinstance(before, list):
        return f"{name} was {before!r:.80}, is {now!r:.80}"
    nothing: dict[str, Any] = {}
    for place, (old, current) in enumerate(itertools.zip_longest(before, now, fillvalue=nothing), 1):
        fields = [field for field in {**current, **old} if old.get(field) != current.get(field)]
        if "name" in fields:
            was, new = (source.get("name", "missing") for source in (old, current))
            return f"source {place} was {was}, is {new}"
        if fields:
            was, new = old.get(fields[0]), current.get(fields[0])  # another command's plan has other fields
            return f"{old['name']}: {fields[0]} was {was}, is {new}"
    raise AssertionError(name)


def _compare_stamps(folder: Folder, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    for name, stamp in now.items():
        if before.get(name) != stamp:
            raise UserError(
                f"{name}: was changed since {folder} was begun; choose another --output, or remove that folder"
            )


@contextlib.contextmanager
def claimed(path: Folder, patient: bool = False) -> Iterator[bool]:
    """Claims the work on `path` for the duration of the block. Yields whether it was free; a kill frees it.

    Args:
      patient: in a bucket, where a kill frees nothing, check whether the holder is still alive, which takes up to half
        a minute. Without it, an existing claim counts.
    """
    lock = path.parent / f".{path.name}.lock"
    with contextlib.ExitStack() as job:
        yield _claim_in_store(job, lock, path, patient) if is_remote(path) else _claim(job, Path(lock))


def _claim(job: contextlib.ExitStack, lock: Path) -> bool:
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock_file = open_alone(lock)
    except Taken:
        return False
    except OSError as error:
        raise UserError(f"{lock.parent}: cannot be written: {system_message(error)}") from None
    if lock_file is None:  # its holder has just exited
        return False
    job.callback(os.close, lock_file[0])
    job.callback(lock.unlink, missing_ok=True)  # first, while it is still this process's
    return True


def _claim_in_store(job: contextlib.ExitStack, lock: Folder, path: Folder, patient: bool) -> bool:
    if not patient and size_of(lock) is not None:
        return False
    try:
        job.enter_context(held_in_store(lock, path))
    except UserError:
        if size_of(lock) is not None:  # another's
            return False
        raise
    return True


def write_sealed(path: Folder, content: Mapping[str, Any]) -> None:
    """Writes a JSON object with its hash."""
    write_atomically(path, json.dumps({**content, SEAL: json_hash(content)}) + "\n")


def read_sealed(path: Folder) -> dict[str, Any] | None:
    """Reads the object, checking its hash; None if the file does not exist."""
    with reported(path):
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
    content = parse_json(text, str(path))
    if content.pop(SEAL, None) != json_hash(content):
        raise UserError(f"{path}: was changed since it was written; remove it, and run the command again")
    return content


def json_hash(content: Any) -> str:
    """SHA-256 of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Stamp(NamedTuple):
    """Identity of a source that has not been read."""

    bytes: int  # 0 if not a file
    written: str  # modification time of a file; version of a dataset


def stamp_of(source: str) -> Stamp:
    """The stamp of a source."""
    if prefix := prefix_of(source):
        return Stamp(0, PREFIXED[prefix].version(source.removeprefix(prefix)))
    size, written = size_and_time(as_path(source))
    return Stamp(size, str(written))


def size_of(path: Folder) -> int | None:
    """The size in bytes of a file or an object in a bucket; None if it does not exist."""
    with reported(path):
        try:
            status: Any = path.stat()
        except FileNotFoundError:
            return None
    return int(status.length if is_remote(path) else status.st_size)


def hash_file(path: Path) -> str:
    """SHA-256 of a file."""
    with reported(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def written_to(path: Folder, *further: str) -> Iterator[Path]:
    """A temporary file to write to, renamed or, under a claim in a bucket, uploaded to `path` after the block.

    `further` are suffixes of more files that are written next to it.
    """
    endings = ("", *further)
    with contextlib.ExitStack() as job:
        if is_remote(path):
            temporary = Path(job.enter_context(tempfile.TemporaryDirectory())) / path.name
        else:
            temporary = temporary_of(Path(path))
            for ending in endings:
                job.callback(Path(f"{temporary}{ending}").unlink, missing_ok=True)
        try:
            yield temporary
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {system_message(error)}") from None
        try:
            for ending in reversed(endings):
                written, target = Path(f"{temporary}{ending}"), path.parent / (path.name + ending)
                if (lock := lock_of(target)) is not None:
                    lock.write(target, written)
                else:
                    put_in_place(written, Path(target))
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {system_message(error)}") from None


def temporary_of(path: Path) -> Path:
    """A temporary name that no other process has: not every shared disk has locks."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def put_in_place(written: Path, path: Path) -> None:
    """Renames a file that is already on the disk, and waits until the new name is on the disk too."""
    written.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this disk cannot sync folders
            raise
    finally:
        os.close(folder)


def remove_leftovers(folder: Folder) -> None:
    """Removes what killed processes left in a complete folder, in which nobody writes anything else."""
    for name in names_in(folder):
        if LEFTOVER.fullmatch(name):
            (folder / name).unlink(missing_ok=True)
