"""A case: a command, what it is given, and how it may end."""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MODEL, TEXT, PAIRS = "model", "text.txt", "pairs.tsv"  # the names of a case's inputs in its folder

# How a case may end. `same`: exit code 0 with the output of the undamaged inputs; `kept`: that output and any code.
REFUSED, DONE, SAME, EITHER = "refused", "done", "same", "refused or done"
REFUSED_OR_SAME, KEPT = "refused or same", "kept"
CODES = {REFUSED: (2,), DONE: (0,), SAME: (0,), EITHER: (0, 2), REFUSED_OR_SAME: (0, 2), KEPT: (0, 2)}
COMPARED = (SAME, REFUSED_OR_SAME, KEPT)  # with the output of the undamaged inputs


@dataclass(frozen=True)
class Seeds:
    """Undamaged inputs, which cases copy: folders and files that all processes of the tests share."""

    path: Callable[[str], Path]  # makes it if it is not there yet

    def copy(self, name: str, target: Path) -> Path:
        source = self.path(name)
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)  # with the time of its last change
        return target


Damage = Callable[[Path], object]  # changes a case's folder, which has its inputs


@dataclass(frozen=True)
class Case:
    """One command line and its inputs."""

    kind: str  # a row of SECURITY.md
    command: str
    damage: str  # what is wrong, in words
    arguments: Sequence[str]
    inputs: Iterable[str] = ()  # names of seeds, copied into the folder
    make: Damage | None = None
    end: str = REFUSED
    names: str = ""  # must be in the line on standard error
    output: str = ""  # a file or folder that exit code 0 must have written
    leaves: tuple[str, ...] = ()  # patterns of files that may be new after a refusal
    options: dict[str, Any] = field(default_factory=dict)  # of `Zygote.run`
    like: tuple[str, ...] = ()  # the command line whose output, with undamaged inputs, this one's must equal

    @property
    def name(self) -> str:
        return f"{self.command}/{self.kind}/{self.damage}"

    def prepare(self, folder: Path, seeds: Seeds) -> None:
        """Fills the case's folder."""
        folder.mkdir()
        for name in self.inputs:
            seeds.copy(name, folder / name)
        if self.make:
            self.make(folder)


class Reader(NamedTuple):
    """A command line, its inputs, and what it writes."""

    command: str
    arguments: Sequence[str]
    inputs: Sequence[str] = ()
    output: str = ""
    leaves: tuple[str, ...] = ()

    def case(
        self, kind: str, damage: str, make: Damage | None = None, end: str = REFUSED, names="", *more: str, **zygote
    ) -> Case:
        """The command with damaged inputs, and with more arguments; the rest is for `Zygote.run`."""
        line = [*self.arguments, *more]
        return Case(kind, self.command, damage, line, self.inputs, make, end, names, self.output, self.leaves, zygote)


def contents(path: Path) -> Any:
    """What a command wrote, as values that can be compared.

    Raises:
      ValueError: when it is incomplete, or has numbers that are not finite.
    """
    if path.is_dir():
        return {file.name: contents(file) for file in sorted(path.iterdir()) if file.suffix in (".json", ".npy")}
    if path.suffix == ".npy":
        array = np.load(path, allow_pickle=False)
        if not np.isfinite(array).all():
            raise ValueError(f"{path.name}: not finite")
        return array
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pylist()
    return path.read_bytes()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} in JSON")


def equal(found: Any, expected: Any) -> bool:
    """Whether two contents are the same, up to the rounding of sums."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(key in found and equal(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(equal, found, expected))
    if isinstance(expected, np.ndarray):
        return found.shape == expected.shape and np.allclose(found, expected, atol=1e-5)
    if isinstance(expected, float):
        return isinstance(found, (int, float)) and math.isclose(found, expected, rel_tol=1e-4, abs_tol=1e-4)
    return bool(found == expected)
