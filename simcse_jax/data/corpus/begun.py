"""A folder that several processes fill, and what is made there: a plan, written first.

The plan stays in the folder, so that a part that was lost can be made again.
"""

import fnmatch
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from simcse_jax.data.corpus.claims import claimed
from simcse_jax.data.corpus.sealed import read_sealed, write_sealed
from simcse_jax.data.corpus.stamps import stamp_of
from simcse_jax.errors import UserError, why
from simcse_jax.host.hidden import DOT, PLAN, dot_before
from simcse_jax.host.storage import Folder, is_of_macos, is_remote

AT_A_TIME = 32  # sources that are looked at
ATTEMPTS = 20  # before a claim in a bucket counts as a dead process's, perhaps


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
