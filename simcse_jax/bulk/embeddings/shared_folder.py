"""A folder that several processes fill: its plan, and files that are whole or absent.

The plan is written first and stays in the folder, so that a part that was lost can be made again. Whoever needs a file
that is not there makes it; of several who make the same one, the first one's counts (`storage.written_once`). So no
process waits for another, and a dead one's work is done by those that are left. JSON files have their own hash, so that
a damaged one is found before anything is concluded from it.
"""

import contextlib
import fnmatch
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from simcse_jax.data.identity import names_in, read_sealed, sealed, stamp_of
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import COUNTED, DOT, PLAN, RANGES
from simcse_jax.host.storage import Folder, is_of_macos, written_once

AT_A_TIME = 32  # sources examined at once
LEFTOVERS = f"{DOT}embeddings-*.tmp"  # files that killed processes did not finish


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


def read_or_write(path: Folder, content: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a sealed file; writes it first if there is no such file."""
    if (before := read_sealed(path)) is None:
        with written_once(path) as temporary:
            temporary.write_text(sealed(content), encoding="utf-8")
        before = read_sealed(path)
        assert before is not None, path
    return before


def enter(folder: Folder, plan: FolderPlan) -> None:
    """Writes the plan into a new folder, or checks that an existing folder has the same plan."""
    if folder.is_dir():
        check_own(folder)
    before = read_or_write(plan.file(folder), {"key": plan.key, "stamps": plan.stamps})
    differing = [name for name in {**plan.key, **before["key"]} if before["key"].get(name) != plan.key.get(name)]
    if differing:
        was = "; ".join(_difference(name, before["key"].get(name), plan.key.get(name)) for name in differing)
        raise UserError(f"--output {folder}: is that of other embeddings: {was}; choose another folder")
    _compare_stamps(folder, before["stamps"], plan.stamps)


def check_own(folder: Folder) -> None:
    """Refuses a folder that has files but no plan."""
    names = names_in(folder)
    foreign = sorted(name for name in names if not name.startswith(DOT))
    if foreign and f"{DOT}{PLAN}" not in names:
        raise UserError(f"--output {folder}: has other files ({foreign[0]}) and no plan; choose another folder")


def check_unchanged(folder: Folder, plan: FolderPlan, sources: Sequence[str] | None = None) -> None:
    """Refuses sources that were changed since the plan was made; by default checks all of them."""
    names = plan.sources if sources is None else sources
    with ThreadPoolExecutor(AT_A_TIME) as threads:  # a bucket answers slowly
        stamps = threads.map(stamp_of, names)
        _compare_stamps(folder, plan.stamps, {name: stamp.written for name, stamp in zip(names, stamps, strict=True)})


def leave(folder: Folder) -> None:
    """Removes the plan and the folder after an error in the data, if no embeddings were made.

    A corrected source counts as a different one, so the folder could not be resumed.
    """
    own = [f"{DOT}{name}" for name in (COUNTED, RANGES, PLAN)]
    names = names_in(folder) if folder.is_dir() else set()
    if names and all(is_of_macos(name) or any(fnmatch.fnmatch(name, note) for note in own) for name in names):
        for name in sorted(names, key=lambda name: name == own[-1]):  # the plan last
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another process may have begun or left it
            folder.rmdir()


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
            was, new = old.get(fields[0]), current.get(fields[0])
            return f"{old['name']}: {fields[0]} was {was}, is {new}"
    raise AssertionError(name)


def _compare_stamps(folder: Folder, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    for name, stamp in now.items():
        if before.get(name) != stamp:
            raise UserError(
                f"{name}: was changed since {folder} was begun; choose another --output, or remove that folder"
            )
