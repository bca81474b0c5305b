import sys

import pytest
from support import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import side_by_side
from benchmarks.side_by_side import Comparison, Contender, Need, compare


def fake(title, function="steady", **options):
    return Contender(title, f"tests.benchmarks.fakes:{function}", options)


def answers(*rounds):
    more = {"notes": {}, "memory_mib": 1.0, "device_memory_mib": None}
    return [{"work": work, "seconds": seconds} | more for work, seconds in rounds]


def made(needs=None, peaks=None):
    rounds = {"ours": answers((8, 1), (8, 2), (8, 4)), "theirs": answers((4, 1), (4, 0.5), (4, 1))}
    about = {name: {"device": "a processor", "versions": {}} for name in rounds}
    return Comparison("title", "things", "ours", rounds, {"third": "is not installed"}, about, peaks or {}, needs or {})


def test_ratios_and_shares_are_those_of_rounds_and_who_fails_is_named_while_the_others_go_on(tmp_path):
    comparison = made()
    assert comparison.rates("ours") == [8, 4, 2]
    assert comparison.ratios("ours", "theirs") == [2, 0.5, 0.5]  # their median is not that of the medians, 4 / 4
    found = comparison.to_json()["contenders"]
    assert found["theirs"]["ours_is"] == {"median": 0.5, "min": 0.5, "max": 2}
    assert found["ours"]["ours_is"] == {"median": 1, "min": 1, "max": 1}
    assert found["ours"]["rate"] == {"median": 4, "min": 2, "max": 8} and comparison.ratios("ours", "third") == []
    peaks = {"float32": [80.0, 40.0, 40.0], "bfloat16": [800.0, 800.0, 800.0]}
    comparison = made({"ours": Need(5.0, "float32"), "theirs": Need(5.0, "bfloat16")}, peaks)
    assert comparison.shares("ours") == [0.5, 0.5, 0.25] and comparison.shares("theirs")[0] == 5 * 4 / 800
    assert made({"ours": Need(5.0, "float32")}).shares("ours") == []  # no peak was measured
    text = side_by_side.table(comparison)
    assert "50.0%" in text and "missing: third: is not installed" in text
    contenders = [
        fake("ours", notes={"scores": [1]}), fake("not installed", "unbuildable", message="no module\nof that name"),
        fake("died", "dies"), fake("no such", "nothing_of_that_name"), fake("later", "fails_later"),
    ]  # fmt: skip
    comparison = compare("failures", "things", contenders, 3, say=str)
    assert list(comparison.rounds) == ["ours"] and len(comparison.rounds["ours"]) == 3
    missing = comparison.missing
    assert missing["not installed"] == "ImportError: no module of that name"
    assert missing["died"] == "its process ended with code 9: Killed: no memory is left"
    assert "nothing_of_that_name" in missing["no such"] and missing["later"] == "failed in round 3: StopIteration"
    found = comparison.to_json()
    assert found["missing"] == missing and found["contenders"]["ours"]["notes"] == {"scores": [1]}


@pytest.mark.slow
def test_contenders_take_turns_in_processes_of_their_own(tmp_path):
    log = str(tmp_path / "log")
    contenders = [fake("A", log=log, name="A", memory_mib=300), fake("B", log=log, name="B", seconds=1.0)]
    comparison = compare("turns", "things", contenders, 3, say=str)
    assert (tmp_path / "log").read_text().split() == ["A", "B"] * 3
    assert comparison.ratios("A", "B") == [0.5] * 3
    for order, expected in (("at once", "A B A B"), ("apart", "A A B B")):
        (tmp_path / "log").unlink()
        again = compare("turns", "things", contenders, 2, order=order, say=str)
        assert (tmp_path / "log").read_text() == expected.replace(" ", "\n") + "\n"
        assert again.ratios("A", "B") == [0.5] * 2
    found = comparison.to_json()["contenders"]
    assert found["A"]["peak_memory_mib"] > found["B"]["peak_memory_mib"] + 250
    assert found["A"]["versions"]["python"]
