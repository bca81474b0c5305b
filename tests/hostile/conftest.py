"""The processes that run the cases, which cases are run, and the counts at the end of a run."""

from collections import Counter

import pytest
from hostile.case import Seeds
from hostile.runner import Runner, environment
from hostile.seeds import make_seed
from hostile.zygote import Zygote


def pytest_generate_tests(metafunc):
    """The cases that are run; where they are deselected, the table is not built."""
    if "case" in metafunc.fixturenames:
        from hostile.table import chosen

        deselected = "not hostile" in metafunc.config.option.markexpr
        metafunc.parametrize("case", [] if deselected else chosen(), ids=lambda case: case.name)


@pytest.fixture(scope="module")
def runner(shared, tmp_path_factory):
    with Zygote(environment()) as zygote:
        seeds = Seeds(lambda name: shared(f"hostile-{name}", lambda to: make_seed(name, to, seeds, zygote)) / name)
        yield Runner(zygote, seeds, tmp_path_factory.mktemp("cases"))


def pytest_terminal_summary(terminalreporter):
    """How many cases of each kind ended well, and the seed that draws the same ones again."""
    from hostile.table import seed

    reports = [(outcome, each) for outcome in ("passed", "failed") for each in terminalreporter.stats.get(outcome, [])]
    ended = [
        (each.nodeid.partition("[")[2].split("/")[1], outcome == "passed")
        for outcome, each in reports
        if "test_case[" in each.nodeid and each.when == "call"
    ]
    kinds, good = Counter(kind for kind, _ in ended), Counter(kind for kind, passed in ended if passed)
    if kinds:
        terminalreporter.section("hostile inputs")
        for kind, count in kinds.items():
            terminalreporter.write_line(f"{kind:<24}{good[kind]:>6,} of {count:,} good")
        terminalreporter.write_line(f"{'all':<24}{good.total():>6,} of {kinds.total():,} good, SEED={seed()}")
