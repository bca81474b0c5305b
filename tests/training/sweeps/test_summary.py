import pytest
from support.sweeps import RESULTS, VARIANTS, sweep

from simcse_jax.training.sweeps.summary import Cell, holm, summarize
from simcse_jax.training.sweeps.variants import Variant


def cell(results, name="better", variants=VARIANTS, metric="stsb_dev", **fields):
    rows = summarize(sweep(**fields), variants, results)
    return next(row for row in rows if row.variant == name).cells[metric]


def test_a_worked_example_of_the_seeds_that_both_have_and_of_columns_on_which_a_row_was_chosen():
    found = cell(RESULTS)
    assert (found.mean, found.std, found.paper, found.difference) == pytest.approx((74.0, 3.0, 84.0, 2.0))
    assert found.p == pytest.approx(1 - 12**0.5 / 14**0.5, abs=1e-9) and found.values == {42: 71.0, 43: 74.0, 44: 77.0}
    base = cell(RESULTS, "base")
    assert (base.mean, base.std, base.difference, base.p) == (72.0, 2.0, None, None)
    assert cell(RESULTS, "a|b") == Cell({}, None, None, None, None, None, "STS-B dev")
    results = {"base": {42: {"stsb_dev": 70.0}, 43: {"stsb_dev": 72.0}}, "better": {43: {"stsb_dev": 75.0}, 44: {}}}
    found = cell(results)
    assert (found.values, found.mean, found.std, found.difference, found.p) == ({43: 75.0}, 75.0, None, 3.0, None)
    none_shared = cell({"base": {42: {"stsb_dev": 1.0}}, "better": {43: {"stsb_dev": 2.0}}})
    assert (none_shared.mean, none_shared.difference, none_shared.p) == (2.0, None, None)
    some = cell(RESULTS, seeds=("44", "42"))  # those of others are left out
    assert some.values == {44: 77.0, 42: 71.0} and some.difference == pytest.approx(2.0)
    variants = (Variant("base", {}), Variant("better", {}, chosen_on=("STS12", "stsb_dev")))
    columns = ("stsb_dev", "STS12", "STS12_mean", "STS13", "sts_avg", "STSBenchmark")
    marked = [metric for metric in columns if cell({}, "better", variants, metric, metrics=columns).chosen]
    assert marked == ["stsb_dev", "STS12", "STS12_mean", "sts_avg"] and not cell({}, "base", variants).chosen


def test_a_column_s_tests_are_corrected_for_their_number_by_holm():
    """The smallest of four counts four times, the next three times, and none is below a smaller one's."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.2]) == pytest.approx([0.9, 0.4]) and holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03] and holm([]) == []
    variants = (*VARIANTS[:2], Variant("worse", {}))
    results = RESULTS | {"worse": {seed: {"stsb_dev": value} for seed, value in ((42, 60.0), (43, 63.0), (44, 64.0))}}
    better, worse = (cell(results, name, variants) for name in ("better", "worse"))
    assert worse.p < better.p and (worse.holm, better.holm) == pytest.approx((2 * worse.p, better.p))
    assert cell(results, "base", variants).holm is None
