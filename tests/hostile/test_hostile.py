"""Every command over a table of bad inputs: a line on standard error and exit code 2, or a right result.

`SEED=7` in the environment draws other cases, `HOSTILE=all` runs the whole table.
"""

import dataclasses

import pytest
from hostile.case import EITHER, REFUSED, SAME, Case, Seeds
from hostile.runner import Runner, environment
from hostile.seeds import write_text
from hostile.zygote import Zygote
from support import ROOT

from simcse_jax.__main__ import COMMANDS


@pytest.mark.hostile
def test_case(case, runner):
    found = runner.run(case)
    assert not found, f"{found}\n{case.command} {' '.join(case.arguments)!r:.500}\n{runner.last}"


def test_a_sample(runner):
    from hostile.table import all_cases, sample

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


FAULTS = {
    "raises": "exit code 70",
    "hangs": "no answer within",
    "crashes": "crash by signal 11",
    "says_nothing": "0 lines with an error",
    "says_it_twice": "2 lines with an error",
    "leaves_a_file": "left or changed out.npy.tmp",
    "changes_its_input": "changed its input text.txt",
    "names_nothing": "does not name text.txt",
    "writes_nonsense": "NaN in JSON",
    "writes_another_result": "another output",
    "runs_code": "ran code",
    "takes_memory": "exit code 70",
    "is_refused": "",
    "is_done": "",
}
SPECIAL = {
    "hangs": {"options": {"seconds": 0.5}},
    "names_nothing": {"end": REFUSED, "names": "text.txt"},
    "writes_another_result": {"end": SAME, "output": "out.json"},
    "writes_nonsense": {"output": "out.json"},
    "is_done": {"output": "out.json"},
}


def test_the_harness_finds_every_fault(tmp_path):
    write_text(tmp_path / "text.txt")
    with Zygote(environment(), imports=False) as zygote:
        runner = Runner(zygote, Seeds(lambda name: tmp_path / name), tmp_path)
        for fault, text in FAULTS.items():
            case = Case("faults", f"hostile.faults:{fault}", "", ["--other"], ["text.txt"], end=EITHER, like=("x",))
            found = runner.run(dataclasses.replace(case, **SPECIAL.get(fault, {})))
            assert text in found and bool(text) == bool(found), (fault, found)
