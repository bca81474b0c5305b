"""A folder that several processes fill: its plan, claims on its parts, files that are whole or not there.

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
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.data.examples import PREFIXED, prefix_of, source_path
from simcse_jax.errors import UserError, why
from simcse_jax.host.flock import Taken, open_alone
from simcse_jax.host.hidden import DOT, PLAN, dot_before
from simcse_jax.host.locks import held_in_store
from simcse_jax.host.storage import Folder, is_of_macos, is_remote, parse_json, write_atomically

AT_A_TIME = 32  # sources that are looked at
ATTEMPTS = 20  # before a claim in a bucket counts as a dead process's, perhaps
SEAL = "seal"
PIECE = 1 << 23  # bytes read at a time to copy a file
LEFTOVERS = ".shard-*.tmp*"  # what killed processes may leave


class Plan(NamedTuple):
    """All that decides what is made, and when the sources were written."""

    key: dict[str, Any]  # its `sources` have a `name` each
    stamps: dict[str, str]  # of sources, by name: `Stamp.written`
    dot: str = ""  # what the names of the folder's own files begin with, see `hidden`

    @property
    def sources(self) -> list[str]:
        """The sources' names."""
        return [source["name"] for source in self.key["sources"]]

    def own(self, folder: Folder, name: str = PLAN) -> Folder:
        """One of the folder's own files, by its name without the dot; by default the plan itself."""
        return folder / f"{self.dot}{name}"

    def as_in(self, folder: Folder) -> "Plan":
        """The plan with the names that the folder has, if it was begun."""
        return self._replace(dot=dot_before(folder, PLAN, new=self.dot))


def enter(folder: Folder, plan: Plan, whose: str, check: Callable[[], object] = lambda: None) -> Plan:
    """Writes the plan into a new folder, or checks that the folder has the same one.

    Args:
      folder: on a disk or in a bucket.
      plan: what is to be made there.
      whose: a folder's that has another plan, for the message: "another corpus's".
      check: called before a folder is begun; raises an error if it should not be.

    Returns:
      The plan, with the names that the folder has: those of an earlier version, if that began it.

    Raises:
      UserError: naming what differs, or when the folder has other files.
    """
    if read_sealed(plan.as_in(folder).own(folder)) is None:
        check()
    attempts = 0
    while True:
        with claimed(folder / PLAN, patient=attempts > ATTEMPTS) as mine:  # one claim for the names of either kind
            if mine:
                return _write_or_compare(folder, plan.as_in(folder), whose)
        attempts += 1
        time.sleep(0.1)  # another process has begun just now


def _write_or_compare(folder: Folder, plan: Plan, whose: str) -> Plan:
    before = read_sealed(plan.own(folder))
    if before is not None:
        _compare(folder, before["key"], plan.key, whose)
        _compare_stamps(folder, before["stamps"], plan.stamps)
    else:
        check_own(folder)
        write_sealed(plan.own(folder), {"key": plan.key, "stamps": plan.stamps})
    return plan


def check_own(folder: Folder) -> None:
    """Refuses a folder with files but without a plan."""
    there = names_in(folder)
    others = sorted(name for name in there if not name.startswith((".", f"{PLAN}.")))  # a plan that was not finished
    if others and there.isdisjoint((PLAN, f"{DOT}{PLAN}")):
        raise UserError(f"--output {folder}: has other files ({others[0]}) and no plan; choose another folder")


def check_unchanged(folder: Folder, plan: Plan, sources: Sequence[str] | None = None) -> None:
    """Looks at sources once more, by default at all of them."""
    names = plan.sources if sources is None else sources
    with ThreadPoolExecutor(AT_A_TIME) as threads:  # a bucket answers slowly
        stamps = threads.map(stamp_of, names)
        _compare_stamps(folder, plan.stamps, {name: stamp.written for name, stamp in zip(names, stamps, strict=True)})


def names_in(folder: Folder) -> set[str]:
    """The names of all files in a folder."""
    try:
        return {path.name for path in folder.iterdir()}
    except Exception as error:  # an OSError, or an error of a store's client
        raise UserError(f"{folder}: cannot be read: {why(error)}") from None


def leave(folder: Folder, plan: Plan, *notes: str) -> None:
    """After a mistake in the data: removes the plan, and the folder, if nothing was made and nobody else is at work.

    A source that is corrected is another one, with which a folder that was begun does not go on.

    Args:
      folder: which was entered.
      plan: as it was entered.
      notes: patterns of files of its own that are no work, and are removed too.
    """
    there = names_in(folder) if folder.is_dir() else set()
    first, *others = (plan.own(folder, name).name for name in (PLAN, *notes))
    if first in there and all(
        is_of_macos(name) or any(fnmatch.fnmatch(name, note) for note in (first, *others)) for name in there
    ):
        for name in sorted(there, key=lambda name: name == first):  # the plan last
            (folder / name).unlink()
        if not is_remote(folder):
            folder.rmdir()


def _compare(folder: Folder, before: Mapping[str, Any], now: Mapping[str, Any], whose: str) -> None:
    differing = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    if differing:
        was = "; ".join(_difference(name, before.get(name), now.get(name)) for name in differing)
        raise UserError(f"--output {folder}: is {whose}: {was}; choose another folder")


def _difference(name: str, before: Any, now: Any) -> str:
    """What differs in a field of the key; of sources, the first that does."""
    if name != "sources" or not isinstance(before, list):
        return f"{name} was {before!r:.80}, is {now!r:.80}"
    nothing: dict[str, Any] = {}
    for place, (one, other) in enumerate(itertools.zip_longest(before, now, fillvalue=nothing), 1):
        fields = [field for field in {**other, **one} if one.get(field) != other.get(field)]
        if "name" in fields:
            was, new = (each.get("name", "missing") for each in (one, other))
            return f"source {place} was {was}, is {new}"
        if fields:
            was, new = (each.get(fields[0]) for each in (one, other))  # another command's have other fields
            return f"{one['name']}: {fields[0]} was {was}, is {new}"
    raise AssertionError(name)


def _compare_stamps(folder: Folder, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    for name, stamp in now.items():
        if before.get(name) != stamp:
            raise UserError(
                f"{name}: was changed since {folder} was begun; choose another --output, or remove that folder"
            )


@contextlib.contextmanager
def claimed(path: Folder, patient: bool = False) -> Iterator[bool]:
    """Claims the work on `path` for the time of the block; a kill frees it. Yields whether it was free.

    Args:
      path: what is written.
      patient: in a bucket, where nothing is freed by itself: find out whether the one that has it is still alive, which
        takes up to half a minute, rather than take its word.
    """
    lock = path.parent / f".{path.name}.lock"
    with contextlib.ExitStack() as job:
        yield _claim_in_store(job, lock, path, patient) if is_remote(path) else _claim(job, Path(lock))


def _claim(job: contextlib.ExitStack, lock: Path) -> bool:
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        found = open_alone(lock)
    except Taken:
        return False
    except OSError as error:
        raise UserError(f"{lock.parent}: cannot be written: {why(error)}") from None
    if found is None:  # its holder has just ended
        return False
    job.callback(os.close, found[0])
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
    """Writes an object and its hash."""
    write_atomically(path, json.dumps({**content, SEAL: _hash(content)}) + "\n")


def read_sealed(path: Folder) -> dict[str, Any] | None:
    """Reads an object back; None if there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except Exception as error:  # an OSError, bad UTF-8, or an error of a store's client
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
    content = parse_json(text, str(path))
    if content.pop(SEAL, None) != _hash(content):
        raise UserError(f"{path}: was changed since it was written; remove it, and give the command again")
    return content


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode(errors="surrogatepass")).hexdigest()


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


@contextlib.contextmanager
def written_to(path: Folder, *further: str) -> Iterator[Path]:
    """A file to write to, which gets its name, or is copied to its bucket, after the block.

    `further` are the endings of more files that are written next to it.
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
