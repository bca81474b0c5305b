"""The rooms of the package: checks the code against the table in docs/background/architecture.md.

An import counts wherever it is: at the top of a file, in a function, or for type checkers alone, because a reader
has to know that type too.
"""

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import ROOT
from support.pages import report

PACKAGE = ROOT / "simcse_jax"
MOST_LINES = 500
LONGER = {"simcse": "the class that people use, whole"}  # files of up to MOST_AT_ALL lines, with the reason
MOST_AT_ALL = 800
WITHOUT_TESTS = {"host.version": "a constant"}  # files whose tests are elsewhere, with the reason


class Room(NamedTuple):
    name: str  # of its folder or file
    contents: list[str]  # some of a folder's files and folders
    may_import: list[str]  # rooms


def read_table(text: str) -> list[Room]:
    """The rooms, from the bottom to the top: `data/` is the folder "data", `errors.py` the file "errors"."""
    _, table = text.split("| room | contents | may import |\n| --- | --- | --- |\n")
    rooms = []
    for line in table.split("\n\n")[0].splitlines():
        name, contents, imports = (cell.strip() for cell in line.strip("|").split("|"))
        (named,), inside = (re.findall(r"`(\w+)(?:/|\.py)?`", cell) for cell in (name, contents))
        rooms.append(Room(named, inside, [] if imports == "–" else imports.split(", ")))
    return rooms


def module_of(path: Path) -> str:
    """`data/files.py` to "data.files"; a folder's `__init__.py` to the folder, the package's own to "__init__"."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


FILES = {module_of(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
ROOMS = read_table((ROOT / "docs" / "background" / "architecture.md").read_text())
MAY_IMPORT = {room.name: set(room.may_import) for room in ROOMS}


def imports_of(source: str, known: set[str]) -> set[str]:
    """The modules of the package that a file imports."""

    def names() -> Iterator[str]:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, "write the whole name of what is imported"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    found = set()
    for name in names():
        package, *parts = name.split(".")
        if package != "simcse_jax":
            continue
        while parts and ".".join(parts) not in known:  # a function's or class's name
            parts.pop()
        found.add(".".join(parts) or "__init__")
    return found


@functools.cache
def imports() -> dict[str, set[str]]:
    """Those of every module; not when tests are collected, which every process does."""
    return {module: imports_of(path.read_text(), set(FILES)) for module, path in FILES.items()}


def room_of(module: str) -> str:
    return module.split(".")[0]


def crossings() -> Iterator[tuple[str, str]]:
    for module, imported in imports().items():
        for other in sorted(imported):
            if room_of(module) != room_of(other):
                yield module, other


def test_every_file_is_in_a_room_that_imports_those_below_which_the_table_allows_and_no_others():
    rooms = {room_of(module) for module in FILES}
    assert rooms == MAY_IMPORT.keys(), report(sorted(rooms ^ MAY_IMPORT.keys()))
    assert len(rooms) <= 24, "a newcomer has to find a room at the first guess"
    assert len(ROOMS) == len(MAY_IMPORT), "a name is in two rows"
    there = {f"{room_of(module)}.{part}" for module in FILES for part in module.split(".")}
    gone = [f"{room.name}.{name}" for room in ROOMS for name in room.contents if f"{room.name}.{name}" not in there]
    assert not gone, report(gone)
    for place, room in enumerate(ROOMS):
        assert set(room.may_import) <= {below.name for below in ROOMS[:place]}, room.name
    found = {(room_of(module), room_of(other)): f"{module} imports {other}" for module, other in crossings()}
    allowed = {(room.name, other) for room in ROOMS for other in room.may_import}
    wrong = [found[pair] for pair in sorted(found.keys() - allowed)]
    wrong += [f"{room} may import {other}, and does not" for room, other in sorted(allowed - found.keys())]
    assert not wrong, report(wrong)


def test_files_do_not_import_each_other_in_a_circle_are_not_long_and_have_a_mirror_test():
    try:
        graphlib.TopologicalSorter(imports()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" ← ".join(error.args[1]))
    lines = {module: path.read_text().count("\n") for module, path in FILES.items()}
    most = {module: MOST_AT_ALL if module in LONGER else MOST_LINES for module in FILES}
    long = [f"{module} has {count} lines" for module, count in lines.items() if count > most[module]]
    assert not long, report(long)
    missing = []
    for module, path in FILES.items():
        *folders, name = module.split(".")
        mirror = ROOT.joinpath("tests", *folders, f"test_{name}.py")
        if path.name == "__init__.py" or module in WITHOUT_TESTS:
            continue
        if not mirror.is_file() or not re.search(r"^def test_", mirror.read_text(), re.MULTILINE):
            missing.append(str(mirror.relative_to(ROOT)))
    assert not missing, report(missing)
