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

PACKAGE = ROOT / "simcse_jax"
MOST_LINES = 500
LONGER = {"simcse": "the class that people use, whole"}  # files of up to MOST_AT_ALL lines, with the reason
MOST_AT_ALL = 800
WITHOUT_TESTS: dict[str, str] = {}  # files whose tests are elsewhere, with the reason


class Room(NamedTuple):
    """A row of the table."""

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
    """The imports that leave a room."""
    for module, imported in imports().items():
        for other in sorted(imported):
            if room_of(module) != room_of(other):
                yield module, other


def report(faults: list[str]) -> str:
    return "\n".join(["", *faults])


def test_imports_are_found_anywhere_in_a_file():
    source = """
import simcse_jax.a.b as c, numpy
from simcse_jax.a import b, function
if TYPE_CHECKING:
    from simcse_jax.d import D
def f():
    from simcse_jax import SimCSE, e
"""
    assert imports_of(source, {"a", "a.b", "d", "e"}) == {"a", "a.b", "d", "e", "__init__"}


def test_every_file_is_in_a_room_and_every_room_has_files():
    rooms = {room_of(module) for module in FILES}
    assert rooms == MAY_IMPORT.keys(), report(sorted(rooms ^ MAY_IMPORT.keys()))
    assert len(rooms) <= 24, "a newcomer has to find a room at the first guess"
    assert len(ROOMS) == len(MAY_IMPORT), "a name is in two rows"
    there = {f"{room_of(module)}.{part}" for module in FILES for part in module.split(".")}
    gone = [f"{room.name}.{name}" for room in ROOMS for name in room.contents if f"{room.name}.{name}" not in there]
    assert not gone, report(gone)


def test_the_table_goes_from_the_bottom_to_the_top():
    below: set[str] = set()
    for room in ROOMS:
        assert set(room.may_import) <= below, room.name
        below.add(room.name)


def test_no_import_is_outside_the_table():
    wrong = [
        f"{module} imports {other}"
        for module, other in crossings()
        if room_of(other) not in MAY_IMPORT[room_of(module)]
    ]
    assert not wrong, report(wrong)


def test_the_table_allows_only_needed_imports():
    needed = {(room_of(module), room_of(other)) for module, other in crossings()}
    allowed = [(room.name, other) for room in ROOMS for other in room.may_import]
    unused = [f"{room} may import {other}" for room, other in allowed if (room, other) not in needed]
    assert not unused, report(unused)


def test_no_files_import_each_other_in_a_circle():
    try:
        graphlib.TopologicalSorter(imports()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" ← ".join(error.args[1]))


def test_no_file_is_long():
    lines = {module: path.read_text().count("\n") for module, path in FILES.items()}
    most = {module: MOST_AT_ALL if module in LONGER else MOST_LINES for module in FILES}
    long = [f"{module} has {count} lines" for module, count in lines.items() if count > most[module]]
    assert not long, report(long)


def test_every_file_has_a_mirror_test():
    missing = []
    for module, path in FILES.items():
        *folders, name = module.split(".")
        mirror = ROOT.joinpath("tests", *folders, f"test_{name}.py")
        if path.name == "__init__.py" or module in WITHOUT_TESTS:
            continue
        if not mirror.is_file() or not re.search(r"^def test_", mirror.read_text(), re.MULTILINE):
            missing.append(str(mirror.relative_to(ROOT)))
    assert not missing, report(missing)
