"""The pages of the docs, and the commands that they name."""

import argparse
import functools
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from simcse_jax.commands.command_line import module_name
from support import ROOT

CHANGES = ROOT / "CHANGELOG.md"  # names what is gone, too
PAGES = [page for page in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))) if page != CHANGES]
COMMAND = re.compile(r"(?:python -m (?:simcse_jax[. ]|(?=benchmarks\.))|\bsimcse-jax )([a-z][a-z_.-]*)([^`|#]*)")


class Command(NamedTuple):
    """A command that a page names."""

    page: Path
    module: str
    rest: str  # its arguments


def text_of(page: Path) -> str:
    """A page without the breaks inside commands."""
    return page.read_text(encoding="utf-8").replace("\\\n", " ")


def commands(*pages: Path) -> Iterator[Command]:
    for page in pages or PAGES:
        for line in text_of(page).splitlines():
            for name, rest in COMMAND.findall(line):
                if name.startswith("benchmarks."):
                    yield Command(page, name, rest)
                else:
                    yield Command(page, "simcse_jax.main" if name == "main" else module_name(name), rest)


@functools.cache
def source_of(module: str) -> str:
    """The text of a command's file, empty if it is no command."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return text if "def main(" in text or "@verb" in text else ""


class Parsed(BaseException):
    """Ends a command after its parser: no `except` of the package catches it."""


def stop_in_parser(module: str, arguments: list[str], method: str, instead: object) -> None:
    """Runs a command with `instead` in place of a method of its parser, which ends the command.

    Raises:
      UserError: when the parser refuses the arguments.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *arguments])
        patch.setattr(argparse.ArgumentParser, method, instead)
        with pytest.raises(Parsed):
            importlib.import_module(module).main()


def report(faults: list[str]) -> str:
    """The message of a failed test: a fault a line."""
    return "\n".join(["", *faults])
