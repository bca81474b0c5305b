"""Every command over a table of bad inputs: a line on standard error and exit code 2, or a right result.

`SEED=7` in the environment draws other cases, `HOSTILE=all` runs the whole table.
"""

import dataclasses
import importlib
import io
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hostile.case import EITHER, REFUSED, SAME, Case, Seeds
from hostile.runner import Runner, environment
from hostile.seeds import make_seed, write_text
from hostile.zygote import Done, Zygote
from support import ROOT

from simcse_jax.__main__ import COMMANDS
from simcse_jax.commands.command_line import run_command
from simcse_jax.commands.verbs import make_main


@pytest.mark.hostile
def test_case(case, runner):
    found = runner.run(case)
    assert not found, f"{found}\n{case.command} {' '.join(case.arguments)!r:.500}\n{runner.last}"


class Here:
    """In place of a zygote: this process, which has imported and compiled what a few harmless cases need."""

    def run(self, command, arguments, folder) -> Done:
        module, _, function = command.partition(":")
        main = getattr(importlib.import_module(module), function) if function else make_main(command)
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", [f"simcse-jax {command}", *arguments])
            patch.chdir(folder)
            with pytest.raises(SystemExit) as end:
                run_command(main)
        return Done(end.value.code, out.getvalue(), err.getvalue(), 0.0)


def test_a_sample(tiny_bert, trained, exported, tmp_path):
    from hostile.table import all_cases, sample

    made = {"model": tiny_bert, "workdir": trained, "exported": exported}

    def path(name):
        if name not in made:
            made[name] = tmp_path / f"seed-{name}" / name
            make_seed(name, made[name].parent, seeds, Here())
        return made[name]

    seeds = Seeds(path)
    runner = Runner(Here(), seeds, tmp_path)
    assert not {case.name: found for case in sample(all_cases()) if (found := runner.run(case))}


def test_the_table_has_all_commands_and_stands_in_the_page_on_security():
    from hostile.table import DRAWN, all_cases, counts_table, draw

    table = all_cases()
    assert len({case.name for case in table}) == len(table)
    assert {case.command for case in table} == {*COMMANDS, "__main__"}
    assert counts_table(table) in (ROOT / "SECURITY.md").read_text()
    first, again, other = ([case.name for case in draw(table, seed)] for seed in "112")
    assert first == again != other and len(first) == len(set(first)) == DRAWN
    assert {case.kind for case in draw(table, "1")} == {case.kind for case in table}


FAULTS = {"raises": "exit code 70", "hangs": "no answer within", "crashes": "crash by signal 11"}
FAULTS |= {"says nothing": "0 lines with an error", "says it twice": "2 lines with an error"}
FAULTS |= {"leaves a file": "left or changed out.npy.tmp", "changes its input": "changed its input text.txt"}
FAULTS |= {"names nothing": "does not name text.txt", "writes nonsense": "NaN in JSON"}
FAULTS |= {"writes another result": "another output", "runs code": "ran code", "takes memory": "exit code 70"}
FAULTS |= {"is refused": "", "is done": ""}
SPECIAL = {"hangs": {"options": {"seconds": 0.5}}, "names nothing": {"end": REFUSED, "names": "text.txt"}}
SPECIAL |= {"writes another result": {"end": SAME, "output": "out.json", "like": ("writes another result",)}}
SPECIAL |= {"writes nonsense": {"output": "out.json"}, "is done": {"output": "out.json"}}


@pytest.mark.hostile
def test_the_harness_finds_every_fault(tmp_path):
    write_text(tmp_path / "text.txt")
    with Zygote(environment(), imports=False) as zygote:
        runner = Runner(zygote, Seeds(lambda name: tmp_path / name), tmp_path)
        for fault, text in FAULTS.items():
            case = Case("faults", "hostile.faults:end", "", [fault, "--other"], ["text.txt"], end=EITHER)
            found = runner.run(dataclasses.replace(case, **SPECIAL.get(fault, {})))
            assert text in found and bool(text) == bool(found), (fault, found)
