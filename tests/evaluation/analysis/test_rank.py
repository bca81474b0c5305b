import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis import rank
from simcse_jax.objectives.barlow_twins import cross_correlation


def rows(count: int, size: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32) + 0.5


def singular(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrix, compute_uv=False)


@pytest.mark.parametrize("reading", rank.READINGS)
def test_the_correlation_is_that_of_the_objective(reading):
    first, second, artificial = rows(7), rows(7, seed=1), rows(3, seed=2)
    expected = cross_correlation(*map(jnp.asarray, (first, second, artificial)), lambda x: x, reading)
    assert np.allclose(rank.correlation(first, second, artificial, reading), expected, atol=1e-6)


def test_the_released_reading_is_pearsons():
    first, second, artificial = rows(7), rows(7, seed=1), rows(3, seed=2)
    both = np.concatenate([np.concatenate([view, artificial]) for view in (first, second)], axis=1)
    expected = np.corrcoef(both.T)[:24, 24:]
    assert np.allclose(rank.correlation(first, second, artificial, "released"), expected, atol=1e-4)
    constant = rank.correlation(np.ones((4, 2)), np.ones((4, 2)), np.empty((0, 2)), "released")
    assert np.array_equal(constant, np.zeros((2, 2)))


@pytest.mark.parametrize("values", [(4.0, 2.0, 1.0, 0.0), (1.0, 1e-12, 1e-17), (0.0, 0.0)])
def test_the_numerical_rank_is_numpys(values):
    matrix = np.diag(values)
    found, tolerance = rank.numerical_rank(singular(matrix))
    assert found == np.linalg.matrix_rank(matrix)
    assert tolerance == len(values) * np.finfo(float).eps * max(values)


def test_the_effective_rank_counts_equal_values():
    assert rank.effective_rank(np.array([3.0, 3, 3, 0, 0])) == pytest.approx(3)
    assert rank.effective_rank(np.array([1.0, 0, 0])) == pytest.approx(1)
    assert rank.effective_rank(np.zeros(3)) == 0
    p = np.array([0.5, 0.25, 0.25])
    assert rank.effective_rank(8 * p) == pytest.approx(2**1.5)  # an entropy of 1.5 bits


def test_the_claim_of_the_paper():
    """A batch bounds the rank, and artificial rows raise it until the dimensions bound it."""
    found = rank.measure(rows(40), [8, 16], [0, 5, 30], batches=3, seed=0)
    ranks = {(each.reading, each.batch, each.artificial): each for each in found}
    assert len(ranks) == len(found) == 12
    for (reading, batch, artificial), each in ranks.items():
        expected = min(batch + artificial - (reading == "released"), 24)
        assert each.bound == expected and each.ranks == [expected] * 3
        assert all(1 < value < expected for value in each.effective_ranks)
    again = rank.measure(rows(40), [8], [0], batches=3, seed=0)
    assert again[0] == ranks["paper", 8, 0] and again[0].to_json()["ranks"] == [8, 8, 8]
    assert rank.measure(rows(40), [8], [0], batches=3, seed=1)[0].effective_ranks != again[0].effective_ranks


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(UserError, match="--rank 41: the data have 40 different sentences; a batch takes 41"):
        rank.measure(rows(40), [41], [0], batches=1, seed=0)
    with pytest.raises(UserError, match="not finite"):
        rank.measure(rows(40) * np.nan, [8], [0], batches=1, seed=0)
