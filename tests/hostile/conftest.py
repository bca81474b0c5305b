"""The processes that run the cases, and the counts at the end of a run."""

from collections import Counter

import pytest
from hostile.case import Seeds
from hostile.runner import Runner, environment
from hostile.seeds import make_seed
from hostile.zygote import Zygote


@pytest.fixture(scope="module")
def runner(shared, tmp_path_factory):
    with Zygote(environment()) as zygote:
        seeds = Seeds(lambda name: shared(f"hostile-{name}", lambda to: make_seed(name, to, seeds, zygote)) / name)
        yield Runner(zygote, seeds, tmp_path_factory.mktemp("cases"))


def pytest_terminal_summary(terminalreporter):
    """How many cases of each kind ended well."""
    kinds: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            if "test_case[" in report.nodeid and report.when == "call":
                kind = report.nodeid.partition("[")[2].split("/")[1]
                kinds[kind] += 1
                good[kind] += outcome == "passed"
    if kinds:
        terminalreporter.section("hostile inputs")
        for kind, count in kinds.items():
            terminalreporter.write_line(f"{kind:<24}{good[kind]:>6,} of {count:,} good")
        terminalreporter.write_line(f"{'all':<24}{sum(good.values()):>6,} of {sum(kinds.values()):,} good")
