"""`simcse-jax` and `python -m simcse_jax`: the list of commands, and each of them."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from support import ROOT, refused

from simcse_jax import __version__
from simcse_jax.__main__ import COMMANDS, GROUPS, dispatch
from simcse_jax.commands.command_line import module_name, run_command

WITHOUT_HEAVY_IMPORTS = "import sys; sys.modules.update(jax=None, flax=None, transformers=None, ml_collections=None); "
WITHOUT_HEAVY_IMPORTS += "sys.argv = ['simcse-jax']; from simcse_jax.__main__ import dispatch; dispatch()"


def start(monkeypatch, capsys, *args, program="/usr/bin/simcse-jax"):
    monkeypatch.setattr(sys, "argv", [program, *args])
    with pytest.raises(SystemExit) as end:
        run_command(dispatch)
    return subprocess.CompletedProcess(args, end.value.code, *capsys.readouterr())


def test_the_commands_are_listed_with_a_line_each_and_an_unknown_one_has_the_near_ones(monkeypatch, capsys):
    done = start(monkeypatch, capsys, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name, about in COMMANDS.items():
        assert f"\n  {name:<12}{about}\n" in done.stdout
    assert re.findall(r"\n\n(\w+):\n", done.stdout) == [*GROUPS, "example"]
    assert {name: [*group] for name, group in GROUPS.items()} == {
        "train": ["train", "tune", "runs", "export", "merge", "sweep", "mine", "prepare", "aot"],
        "use": ["encode", "search", "serve", "demo"], "measure": ["evaluate", "analyze", "geometry"],
        "papers": ["build-data", "overlap"],
    }  # fmt: skip
    assert max(map(len, done.stdout.splitlines())) <= 110
    assert all(start(monkeypatch, capsys, *args).stdout == done.stdout for args in ([], ["-h"], ["help"]))
    (one, *others) = (
        start(monkeypatch, capsys, *args).stdout
        for args in (["runs", "--help"], ["help", "runs"], ["--help", "runs"], ["runs", "help"])
    )
    assert one.endswith("example:\n  simcse-jax runs runs\n") and others == [one] * 3
    assert start(monkeypatch, capsys, "train", "help", "lr").stdout.startswith("  --config.train.learning_rate=3e-05\n")
    for name in COMMANDS:
        assert importlib.util.find_spec(module_name(name)), name
    assert start(monkeypatch, capsys, "--version").stdout == f"simcse_jax {__version__}\n"
    for given, parts in (
        ("evalute", ("no command 'evalute'; the nearest one is evaluate (simcse-jax --help",)),
        ("serch", ("no command 'serch'; the nearest one is search",)),
        ("xyzzy", ("no command 'xyzzy' (simcse-jax --help lists all)",)),
        ("--verson", ("no option '--verson'; the nearest one is --version",)),
        ("--completion", ("--completion: must be one of bash, zsh, fish",)),
    ):
        refused(start(monkeypatch, capsys, given), *parts)


PROGRAMS = {"/usr/bin/simcse-jax": "simcse-jax", r"simcse-jax.exe": "simcse-jax"}
PROGRAMS |= {"/x/simcse_jax/__main__.py": "python -m simcse_jax"}


@pytest.mark.parametrize(("program", "shown"), PROGRAMS.items())
def test_help_and_errors_name_how_it_was_started(program, shown, monkeypatch, capsys):
    for command in ("encode", "train", "sweep"):
        assert f"sage: {shown} {command} " in start(monkeypatch, capsys, command, "--help", program=program).stdout
    refused(start(monkeypatch, capsys, "encode", program=program), f"(see {shown} encode --help)")
    assert f"usage: {shown} COMMAND" in start(monkeypatch, capsys, program=program).stdout


def test_it_runs_a_command_as_python_does_and_the_list_imports_no_jax(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    args = [sys.executable, "-m", "simcse_jax", "train", "--config", "unsup_bert", "--config.sed=1"]
    done = subprocess.run(args, capture_output=True, text=True, cwd=tmp_path, env=environment)
    refused(done, "the nearest one is --config.seed")
    done = subprocess.run([sys.executable, "-c", WITHOUT_HEAVY_IMPORTS], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "  encode " in done.stdout, done.stderr


def test_a_shell_completes_commands_and_options_by_a_script(monkeypatch, capsys):
    script = start(monkeypatch, capsys, "--completion", "bash").stdout
    ask = "_simcse_jax; echo ${COMPREPLY[@]}"
    words = {"se": "search serve", "encode --output-d": "--output-dtype", "search build --co": "--codes"}
    for typed, expected in words.items():
        given = f"COMP_WORDS=(simcse-jax {typed}); COMP_CWORD={len(typed.split())}; {ask}"
        done = subprocess.run(["bash", "-c", f"{script}\n{given}"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == expected.split(), typed
