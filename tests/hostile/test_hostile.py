"""Every command over a table of bad inputs: a line on standard error and exit code 2, or a right result."""

import os

import pytest
from hostile.case import EITHER, REFUSED, SAME, Case, Seeds
from hostile.runner import Runner, environment
from hostile.seeds import write_text
from hostile.table import all_cases, counts_table, sample
from hostile.zygote import Zygote
from support import ROOT

from simcse_jax.__main__ import COMMANDS

TABLE = all_cases()
PART, PARTS = map(int, (os.environ.get("PART") or "0/1").split("/"))


@pytest.mark.hostile
@pytest.mark.parametrize("case", TABLE[PART::PARTS], ids=lambda case: case.name)
def test_case(case, runner):
    found = runner.run(case)
    assert not found, f"{found}\n{case.command} {' '.join(case.arguments)!r:.500}\n{runner.last}"


def test_a_sample(runner):
    problems = {case.name: found for case in sample(TABLE) if (found := runner.run(case))}
    assert not problems


def test_the_table_has_all_commands_and_stands_in_the_page_on_security():
    assert len(TABLE) >= 1000 and len({case.name for case in TABLE}) == len(TABLE)
    assert {case.command for case in TABLE} == {*COMMANDS, "__main__"}
    assert {case.kind for case in sample(TABLE)} == {case.kind for case in TABLE}
    assert counts_table(TABLE) in (ROOT / "SECURITY.md").read_text()


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


def test_the_harness_finds_every_fault(tmp_path):
    write_text(tmp_path / "text.txt")
    found = {}
    with Zygote(environment(), imports=False) as zygote:
        runner = Runner(zygote, Seeds(lambda name: tmp_path / name), tmp_path)
        for fault in FAULTS:
            end = {"writes_another_result": SAME, "names_nothing": REFUSED}.get(fault, EITHER)
            options = {"seconds": 1} if fault == "hangs" else {}
            case = Case(
                "faults",
                f"hostile.faults:{fault}",
                "",
                ["--other"],
                ["text.txt"],
                None,
                end,
                "",
                "",
                (),
                options,
                (),
                ("x",),
            )
            case = case if fault != "names_nothing" else Case(**{**vars(case), "names": "text.txt"})
            writes = fault.startswith("writes") or fault == "is_done"
            found[fault] = runner.run(Case(**{**vars(case), "output": "out.json"}) if writes else case)
    wrong = {
        fault: found[fault]
        for fault, text in FAULTS.items()
        if text not in found[fault] or bool(text) != bool(found[fault])
    }
    assert not wrong
