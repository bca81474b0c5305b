import itertools

import numpy as np
import pytest

from simcse_jax.evaluation.analysis import dimensions, isotropy


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.4, 1, shape)


def contributions(pairs) -> np.ndarray:
    """Eq. 6, pair by pair."""
    return np.mean([u * v / np.linalg.norm(u) / np.linalg.norm(v) for u, v in pairs], axis=0)


def sums(types) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    units = [isotropy.normalize(rows) for rows in types]
    squares = np.stack([np.sum(rows**2, axis=0) for rows in units])
    return np.stack([rows.sum(axis=0) for rows in units]), squares, np.array([len(rows) for rows in types])


def test_contributions_over_random_pairs_add_up_to_the_anisotropy():
    rows = random(9, 5) * np.arange(1, 10)[:, None]
    found = dimensions.random_pairs(rows)
    assert found == pytest.approx(contributions(itertools.combinations(rows, 2)), abs=1e-12)
    assert found.sum() == pytest.approx(float(isotropy.mean_cosine(rows)), abs=1e-12)


def test_products_are_those_of_all_pairs_without_their_norms():
    rows = random(9, 5) * np.arange(1, 10)[:, None]
    expected = np.mean([u * v for u, v in itertools.product(rows, repeat=2)], axis=0)
    assert dimensions.mean_products(rows) == pytest.approx(expected, abs=1e-12)


def test_contributions_over_pairs_of_the_same_type():
    types = [random(count, 5, seed=count) for count in (2, 3, 9)]
    different = [list(itertools.combinations(rows, 2)) for rows in types]
    means = [contributions(pairs) for pairs in different]
    assert dimensions.self_similarity_pairs(*sums(types), "types") == pytest.approx(np.mean(means, axis=0), abs=1e-12)
    every = contributions(pair for pairs in different for pair in pairs)
    assert dimensions.self_similarity_pairs(*sums(types), "pairs") == pytest.approx(every, abs=1e-12)
    with_themselves = [contributions(itertools.product(rows, repeat=2)) for rows in types]
    shares = np.mean([part / part.sum() for part in with_themselves], axis=0)
    assert dimensions.self_similarity_pairs(*sums(types), "shares") == pytest.approx(shares, abs=1e-12)


def test_the_summary_counts_the_largest_dimensions_first():
    found = dimensions.summary(np.array([0.1, 0.4, 0.2, 0.3, 1.0]))
    assert found["top_share"] == pytest.approx([0.5, 0.7, 0.85])
    assert found["needed"] == {"10": 1, "20": 1, "50": 1}
    assert found["cumulated"] == pytest.approx([0.5, 0.7, 0.85, 0.95, 1])


def test_equal_dimensions_are_needed_in_proportion():
    assert dimensions.summary(np.full(40, 0.3))["needed"] == {"10": 4, "20": 8, "50": 20}


def test_dimensions_that_take_away_make_the_others_more_than_the_whole():
    found = dimensions.summary(np.array([0.3, 0.9, -0.2]))
    assert found["cumulated"] == pytest.approx([0.9, 1.2, 1.0])
    assert found["needed"]["50"] == 1


@pytest.mark.parametrize("whole", [[0.2, -0.2], [0.1, -0.3]])
def test_what_is_not_positive_as_a_whole_has_no_shares(whole):
    assert dimensions.summary(np.array(whole)) == {
        "top_share": [None] * 3,
        "needed": {"10": None, "20": None, "50": None},
        "cumulated": None,
    }
