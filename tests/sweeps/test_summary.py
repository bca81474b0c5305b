import warnings

import pytest
from support.sweeps import RESULTS, VARIANTS, sweep

from simcse_jax.sweeps.summary import Cell, paired_p, summarize


def cell(results, name="better", variants=VARIANTS, metric="stsb_dev", **fields):
    rows = summarize(sweep(**fields), variants, results)
    return next(row for row in rows if row.variant == name).cells[metric]


def test_a_worked_example():
    found = cell(RESULTS)
    assert (found.mean, found.std, found.paper, found.difference) == pytest.approx((74.0, 3.0, 84.0, 2.0))
    assert found.p == pytest.approx(1 - 12**0.5 / 14**0.5, abs=1e-9)
    assert found.values == {42: 71.0, 43: 74.0, 44: 77.0}
    base = cell(RESULTS, "base")
    assert (base.mean, base.std, base.difference, base.p) == (72.0, 2.0, None, None)
    assert cell(RESULTS, "a|b") == Cell({}, None, None, None, None, None, "STS-B dev")


def test_only_the_seeds_that_both_have_are_compared():
    results = {"base": {42: {"stsb_dev": 70.0}, 43: {"stsb_dev": 72.0}}, "better": {43: {"stsb_dev": 75.0}, 44: {}}}
    found = cell(results)
    assert (found.values, found.mean, found.std, found.difference, found.p) == ({43: 75.0}, 75.0, None, 3.0, None)
    none_shared = cell({"base": {42: {"stsb_dev": 1.0}}, "better": {43: {"stsb_dev": 2.0}}})
    assert (none_shared.mean, none_shared.difference, none_shared.p) == (2.0, None, None)


def test_runs_of_other_seeds_are_left_out():
    assert cell(RESULTS, seeds=("44", "42")).values == {44: 77.0, 42: 71.0}
    assert cell(RESULTS, seeds=("44", "42")).difference == pytest.approx(2.0)


@pytest.mark.parametrize("shift", [0.0, 0.1, -3.3])
def test_differences_that_do_not_vary_have_no_p(shift):
    first = [70.1, 71.7, 69.3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert paired_p([value + shift for value in first], first) is None


def test_small_differences_that_do_vary_have_one():
    assert paired_p([70.001, 71.002, 69.003], [70.0, 71.0, 69.0]) == pytest.approx(1 - 12**0.5 / 14**0.5, abs=1e-6)
