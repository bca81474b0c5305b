import pytest

from benchmarks.tune_settings import FIELDS, summary

pytestmark = pytest.mark.benchmarks
GAINS = {"tune": {"a": 1.0, "b": 2.0, "c": 2.0}, "rate 5e-5": {"a": 9.0, "b": 0.0, "c": 0.0}}


def test_the_means_and_what_is_chosen_without_each_data_set():
    lines = [
        dict(zip(FIELDS, (name, 300, setting, 0, 50.0, 50 + gain), strict=True))
        for setting, gains in GAINS.items()
        for name, gain in gains.items()
    ]
    lines.append(dict(zip(FIELDS, ("a", 300, "10 epochs", 0, 50.0, 99.0), strict=True)))  # not of all data sets
    table, *chosen = summary(lines).rpartition("\nwithout a")[0], *summary(lines).splitlines()[-3:]
    assert [row.split()[-1] for row in table.splitlines()[2:]] == ["+1.67", "+3.00"] and "10 epochs" not in table
    assert chosen == [
        "without a: tune, +1.00 (tune +1.00)",
        "without b: rate 5e-5, +0.00 (tune +2.00)",
        "without c: rate 5e-5, +0.00 (tune +2.00)",
    ]
