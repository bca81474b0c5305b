"""`simcse-jax` and `python -m simcse_jax`: the list of commands, and each of them."""

import importlib.util
import os
import subprocess
import sys

import pytest
from support import ROOT, refused

from simcse_jax import __version__
from simcse_jax.__main__ import COMMANDS, dispatch
from simcse_jax.commands.command_line import module_of, run_command

WITHOUT_HEAVY_IMPORTS = """
import sys
from simcse_jax.__main__ import dispatch
sys.argv = ["simcse-jax"]
dispatch()
assert not {"jax", "flax", "transformers", "ml_collections"} & set(sys.modules)
"""


def start(monkeypatch, capsys, *args, program="/usr/bin/simcse-jax"):
    """Runs the program in this process."""
    monkeypatch.setattr(sys, "argv", [program, *args])
    with pytest.raises(SystemExit) as end:
        run_command(dispatch)
    return subprocess.CompletedProcess(args, end.value.code, *capsys.readouterr())


def test_the_commands_are_listed_with_a_line_each(monkeypatch, capsys):
    done = start(monkeypatch, capsys, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name, about in COMMANDS.items():
        assert f"\n  {name:<12}{about}\n" in done.stdout
    assert list(COMMANDS) == [
        "train", "tune", "evaluate", "encode", "search", "export", "runs", "sweep", "analyze", "geometry", "build-data",
        "overlap", "mine", "prepare", "aot", "serve", "demo",
    ]  # fmt: skip
    assert max(map(len, done.stdout.splitlines())) <= 110
    assert all(start(monkeypatch, capsys, *args).stdout == done.stdout for args in ([], ["-h"]))


def test_each_command_is_a_module():
    for name in COMMANDS:
        assert importlib.util.find_spec(module_of(name)), name


def test_the_version(monkeypatch, capsys):
    assert start(monkeypatch, capsys, "--version").stdout == f"simcse_jax {__version__}\n"


def test_an_unknown_command_is_one_line_with_the_near_ones(monkeypatch, capsys):
    for given, parts in (
        ("evalute", ("no command 'evalute'; the nearest one is evaluate (simcse-jax --help",)),
        ("serch", ("no command 'serch'", "search")),
        ("--verson", ("no option '--verson'",)),
    ):
        refused(start(monkeypatch, capsys, given), *parts)


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("/usr/bin/simcse-jax", "simcse-jax"),
        (r"simcse-jax.exe", "simcse-jax"),
        ("/x/simcse_jax/__main__.py", "python -m simcse_jax"),
    ],
)
def test_help_and_errors_name_how_it_was_started(program, shown, monkeypatch, capsys):
    for command in ("encode", "train", "sweep"):
        assert f"usage: {shown} {command} " in start(monkeypatch, capsys, command, "--help", program=program).stdout
    refused(start(monkeypatch, capsys, "encode", program=program), f"(see {shown} encode --help)")
    assert f"usage: {shown} COMMAND" in start(monkeypatch, capsys, program=program).stdout


def test_it_runs_a_command_as_python_does(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    args = [sys.executable, "-m", "simcse_jax", "train", "--config", "unsup_bert", "--config.sed=1"]
    done = subprocess.run(args, capture_output=True, text=True, cwd=tmp_path, env=environment)
    refused(done, "the nearest one is --config.seed")


def test_the_list_imports_no_jax():
    done = subprocess.run([sys.executable, "-c", WITHOUT_HEAVY_IMPORTS], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "  encode " in done.stdout, done.stderr
