"""The processes that run the cases, which cases are run, and the counts at the end of a run."""

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
    """How many cases ended well, and the seed that draws the same ones again."""
    from hostile.table import seed

    reports = [each for outcome in ("passed", "failed") for each in terminalreporter.stats.get(outcome, [])]
    ended = [each.passed for each in reports if "test_case[" in each.nodeid and each.when == "call"]
    if ended:
        terminalreporter.write_line(f"hostile inputs: {sum(ended):,} of {len(ended):,} good, SEED={seed()}")
