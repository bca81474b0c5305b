"""A folder that several processes fill: its plan, claims on its parts, and files that are whole or absent.

The plan is written first and stays in the folder, so that a part that was lost can be made again. JSON files have
their own hash, so that a damaged one is found before anything is concluded from it.
"""

import contextlib
import fnmatch
import itertools
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.data.identity import names_in, read_sealed, size_of, stamp_of, write_sealed
from simcse_jax.errors import UserError, system_message
from simcse_jax.host.claims import held_in_store
from simcse_jax.host.disk_lock import locked
from simcse_jax.host.hidden import DOT, PLAN
from simcse_jax.host.storage import Folder, is_of_macos, is_remote, lock_of

AT_A_TIME = 32  # sources examined at once
ATTEMPTS = 20  # before a claim in a bucket counts as a dead process's, perhaps
# What killed processes may leave: files that were not finished, and claims on those that were.
LEFTOVER = re.compile(r"\.{1,2}(embeddings|plan|quantization|rows)[-.].*\.(lock|tmp.*)")


class FolderPlan(NamedTuple):
    """Everything that determines the result, and when the sources were written."""

    key: dict[str, Any]  # its `sources` have a `name` each
    stamps: dict[str, str]  # of sources, by name: `Stamp.written`

    @property
    def sources(self) -> list[str]:
        """The sources' names."""
        return [source["name"] for source in self.key["sources"]]

    def file(self, folder: Folder, name: str = PLAN) -> Folder:
        """One of the folder's own files, named without the dot; by default the plan itself."""
        return folder / f"{DOT}{name}"


def enter(folder: Folder, plan: FolderPlan) -> None:
    """Writes the plan into a new folder, or checks that an existing folder has the same plan."""
    for attempt in itertools.count():
        with claimed(folder / PLAN, patient=attempt > ATTEMPTS) as is_free:
            if is_free:
                before = read_sealed(plan.file(folder))
                if before is None:
                    check_own(folder)
                    write_sealed(plan.file(folder), {"key": plan.key, "stamps": plan.stamps})
                else:
                    _compare(folder, before, plan)
                break
        time.sleep(0.1)  # another process has just started it


def check_own(folder: Folder) -> None:
    """Refuses a folder that has files but no plan."""
    names = names_in(folder)
    foreign = sorted(name for name in names if not name.startswith((".", f"{PLAN}.")))  # an unfinished plan
    if foreign and f"{DOT}{PLAN}" not in names:
        raise UserError(f"--output {folder}: has other files ({foreign[0]}) and no plan; choose another folder")


def check_unchanged(folder: Folder, plan: FolderPlan, sources: Sequence[str] | None = None) -> None:
    """Refuses sources that were changed since the plan was made; by default checks all of them."""
    names = plan.sources if sources is None else sources
    with ThreadPoolExecutor(AT_A_TIME) as threads:  # a bucket answers slowly
        stamps = threads.map(stamp_of, names)
        _compare_stamps(folder, plan.stamps, {name: stamp.written for name, stamp in zip(names, stamps, strict=True)})


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


def _compare(folder: Folder, before: Mapping[str, Any], plan: FolderPlan) -> None:
    key, now = before["key"], plan.key
    differing = [name for name in {**now, **key} if key.get(name) != now.get(name)]
    if differing:
        was = "; ".join(_difference(name, key.get(name), now.get(name)) for name in differing)
        raise UserError(f"--output {folder}: is that of other embeddings: {was}; choose another folder")
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
        job.enter_context(locked(lock, lock.parent))
    except UserError:
        if lock.exists():  # another's
            return False
        raise
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


@contextlib.contextmanager
def written_to(path: Folder) -> Iterator[Path]:
    """A temporary file to write to, renamed or, under a claim in a bucket, uploaded to `path` after the block."""
    with contextlib.ExitStack() as job:
        if is_remote(path):
            temporary = Path(job.enter_context(tempfile.TemporaryDirectory())) / path.name
        else:  # a name that no other process has: not every shared disk has locks
            temporary = Path(path).with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
            job.callback(temporary.unlink, missing_ok=True)
        try:
            yield temporary
            if (lock := lock_of(path)) is not None:
                lock.write(path, temporary)
            else:
                temporary.replace(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {system_message(error)}") from None


def remove_leftovers(folder: Folder) -> None:
    """Removes what killed processes left in a complete folder, in which nobody writes anything else."""
    for name in names_in(folder):
        if LEFTOVER.fullmatch(name):
            (folder / name).unlink(missing_ok=True)
