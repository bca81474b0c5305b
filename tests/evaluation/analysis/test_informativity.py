import itertools

import numpy as np
import pytest
import scipy.spatial
import scipy.stats

from simcse_jax.evaluation.analysis.informativity import REMOVED, informativity


def test_it_is_the_squared_correlation_of_the_cosines_before_and_after():
    rows = np.random.default_rng(0).normal(0.3, 1, (12, 6))
    order = [4, 1, 5, 0, 2, 3]
    contributions = np.empty(6)
    contributions[order] = [5, 4, 3, 2, 1, 0]

    def cosines(left: list[int]) -> list[float]:
        return [1 - scipy.spatial.distance.cosine(u[left], v[left]) for u, v in itertools.combinations(rows, 2)]

    original = cosines(list(range(6)))
    expected = {k: scipy.stats.pearsonr(original, cosines(order[k:])).statistic ** 2 for k in (1, 2, 3, 5)}
    assert informativity(rows, contributions) == pytest.approx(expected, abs=1e-12)


def test_a_dominant_dimension_may_carry_no_information():
    """If the other dimensions have length one, it adds the same to all cosines, however large it is."""
    rows = np.random.default_rng(1).normal(size=(30, 20))
    rows = np.insert(rows / np.linalg.norm(rows, axis=1, keepdims=True), 7, 5.0, axis=1)
    found = informativity(rows, rows.mean(axis=0) ** 2)
    assert found[1] == pytest.approx(1)
    assert found[10] < 0.9


def test_only_numbers_below_the_size_are_removed():
    rows = np.random.default_rng(2).normal(size=(5, 384))
    assert list(informativity(rows, np.arange(384.0))) == [k for k in REMOVED if k < 384]
    assert list(informativity(rows[:, :2], np.arange(2.0))) == [1]


def test_what_does_not_vary_correlates_with_nothing():
    rows = np.random.default_rng(3).normal(size=(5, 2))
    assert informativity(np.column_stack([rows, np.zeros(5)]), np.array([2.0, 1.0, 0.0]))[2] == 0
