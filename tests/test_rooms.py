"""The rooms of the package: checks the code against the table in docs/architecture.md.

An import counts wherever it is: at the top of a file, in a function, or for type checkers alone, because a reader
has to know that type too.
"""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import ROOT

PACKAGE = ROOT / "simcse_jax"
MOST_LINES = 350
LONGER: dict[str, str] = {}  # longer files, with the reason
WITHOUT_TESTS: dict[str, str] = {}  # files whose tests are elsewhere, with the reason


class Room(NamedTuple):
    """A row of the table."""

    names: list[str]  # its folder, or its files
    contents: list[str]  # some of a folder's files
    may_import: list[str]  # rooms, files at the top, or ROOM.FILE


def read_table(text: str) -> list[Room]:
    """The rooms, from the bottom to the top: `data/` is the folder "data", `errors.py` the file "errors"."""
    _, table = text.split("| room | contents | may import |\n| --- | --- | --- |\n")
    rooms = []
    for line in table.split("\n\n")[0].splitlines():
        names, contents, imports = (cell.strip() for cell in line.strip("|").split("|"))
        named, inside = (re.findall(r"`(\w+)(?:/|\.py)?`", cell) for cell in (names, contents))
        rooms.append(Room(named, inside, [] if imports == "–" else imports.split(", ")))
    return rooms


def module_of(path: Path) -> str:
    """`data/files.py` to "data.files"; a folder's `__init__.py` to the folder, the package's own to "__init__"."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


FILES = {module_of(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
ROOMS = read_table((ROOT / "docs" / "architecture.md").read_text())
ROOM_OF = {name: room for room in ROOMS for name in room.names}


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


IMPORTS = {module: imports_of(path.read_text(), set(FILES)) for module, path in FILES.items()}


def allows(entry: str, module: str) -> bool:
    """Whether an entry of the table, a room or a file of one, includes the module."""
    return module == entry or module.startswith(entry + ".")


def crossings() -> Iterator[tuple[str, str]]:
    """The imports that leave a room; each file at the top of the package is its own room, whatever its row."""
    for module, imported in IMPORTS.items():
        for other in sorted(imported):
            if module.split(".")[0] != other.split(".")[0]:
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
    homeless = [module for module in FILES if module.split(".")[0] not in ROOM_OF]
    assert not homeless, report(homeless)
    assert {module.split(".")[0] for module in FILES} == set(ROOM_OF)
    assert len(ROOM_OF) == sum(len(room.names) for room in ROOMS), "a name is in two rows"
    named = [f"{room.names[0]}.{name}" for room in ROOMS for name in room.contents]
    gone = [name for name in named if name not in FILES]
    assert not gone, report(gone)


def test_the_table_goes_from_the_bottom_to_the_top():
    below: set[str] = set()
    for room in ROOMS:
        assert {entry.split(".")[0] for entry in room.may_import} <= below, room.names
        below |= set(room.names)


def test_no_import_is_outside_the_table():
    wrong = [
        f"{module} imports {other}"
        for module, other in crossings()
        if not any(allows(entry, other) for entry in ROOM_OF[module.split(".")[0]].may_import)
    ]
    assert not wrong, report(wrong)


def test_the_table_allows_only_needed_imports():
    unused = [
        f"{', '.join(room.names)} may import {entry}"
        for room in ROOMS
        for entry in room.may_import
        if not any(module.split(".")[0] in room.names and allows(entry, other) for module, other in crossings())
    ]
    assert not unused, report(unused)


def test_no_files_import_each_other_in_a_circle():
    try:
        graphlib.TopologicalSorter(IMPORTS).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" ← ".join(error.args[1]))


def test_no_file_is_long():
    lines = {module: path.read_text().count("\n") for module, path in FILES.items() if module not in LONGER}
    long = [f"{module} has {count} lines" for module, count in lines.items() if count > MOST_LINES]
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
