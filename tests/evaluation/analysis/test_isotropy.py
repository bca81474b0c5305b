import itertools

import numpy as np
import pytest
import scipy.spatial
import scipy.stats

from simcse_jax.evaluation.analysis import isotropy
from simcse_jax.evaluation.analysis.isotropy import REMOVED, informativity


def cosine(u, v) -> float:
    return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))


def pairs(rows) -> float:
    """The mean over pairs of different rows, one by one."""
    return float(np.mean([cosine(u, v) for u, v in itertools.combinations(rows, 2)]))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.4, 1, shape)


def test_mean_cosines_and_similarities_are_those_of_all_pairs_without_looking_at_them():
    assert isotropy.normalize(np.zeros((2, 3))).tolist() == [[0, 0, 0]] * 2
    rows = random(3, 7, 5) * np.arange(1, 8)[:, None]  # of any length
    assert isotropy.mean_cosine(rows) == pytest.approx([pairs(layer) for layer in rows], abs=1e-12)
    half = random(20_000, 16).astype(np.float32)
    rows = np.concatenate([half, -half])
    assert isotropy.mean_cosine(rows) == pytest.approx(-1 / (len(rows) - 1), rel=1e-9)
    types = [random(count, 5, seed=count) for count in (2, 3, 9)]
    sums = np.stack([isotropy.normalize(rows).sum(axis=0) for rows in types])
    found = isotropy.self_similarity(sums, np.array([2, 3, 9]))
    assert found == pytest.approx([pairs(rows) for rows in types], abs=1e-12)
    tokens = random(4, 6) * np.array([1, 10, 1, 1])[:, None]  # a long one draws the mean to itself
    expected = np.mean([cosine(token, tokens.mean(axis=0)) for token in tokens])
    assert isotropy.intra_sentence_similarity(tokens) == pytest.approx(expected, abs=1e-12)
    assert isotropy.intra_sentence_similarity(np.stack([tokens, tokens[::-1]])) == pytest.approx([expected] * 2)
    assert isotropy.intra_sentence_similarity(tokens[:1]) == pytest.approx(1)


def contributions(pairs) -> np.ndarray:
    """Eq. 6, pair by pair."""
    return np.mean([u * v / np.linalg.norm(u) / np.linalg.norm(v) for u, v in pairs], axis=0)


def sums(types) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    units = [isotropy.normalize(rows) for rows in types]
    squares = np.stack([np.sum(rows**2, axis=0) for rows in units])
    return np.stack([rows.sum(axis=0) for rows in units]), squares, np.array([len(rows) for rows in types])


def test_contributions_are_those_of_all_pairs_and_summarized_the_largest_first():
    rows = random(9, 5) * np.arange(1, 10)[:, None]
    found = isotropy.random_pairs(rows)
    assert found == pytest.approx(contributions(itertools.combinations(rows, 2)), abs=1e-12)
    assert found.sum() == pytest.approx(float(isotropy.mean_cosine(rows)), abs=1e-12)
    types = [random(count, 5, seed=count) for count in (2, 3, 9)]
    different = [list(itertools.combinations(rows, 2)) for rows in types]
    means = [contributions(pairs) for pairs in different]
    assert isotropy.self_similarity_pairs(*sums(types), "types") == pytest.approx(np.mean(means, axis=0), abs=1e-12)
    every = contributions(pair for pairs in different for pair in pairs)
    assert isotropy.self_similarity_pairs(*sums(types), "pairs") == pytest.approx(every, abs=1e-12)
    with_themselves = [contributions(itertools.product(rows, repeat=2)) for rows in types]
    shares = np.mean([part / part.sum() for part in with_themselves], axis=0)
    assert isotropy.self_similarity_pairs(*sums(types), "shares") == pytest.approx(shares, abs=1e-12)
    found = isotropy.summary(np.array([0.1, 0.4, 0.2, 0.3, 1.0]))
    assert found["top_share"] == pytest.approx([0.5, 0.7, 0.85])
    assert found["needed"] == {"10": 1, "20": 1, "50": 1}
    assert found["cumulated"] == pytest.approx([0.5, 0.7, 0.85, 0.95, 1])
    assert isotropy.summary(np.full(40, 0.3))["needed"] == {"10": 4, "20": 8, "50": 20}
    found = isotropy.summary(np.array([0.3, 0.9, -0.2]))  # one takes away: the others are more than the whole
    assert found["cumulated"] == pytest.approx([0.9, 1.2, 1.0]) and found["needed"]["50"] == 1
    nothing = {"top_share": [None] * 3, "needed": {"10": None, "20": None, "50": None}, "cumulated": None}
    assert isotropy.summary(np.array([0.2, -0.2])) == isotropy.summary(np.array([0.1, -0.3])) == nothing


def test_the_informativity_is_the_squared_correlation_of_the_cosines_before_and_after():
    rows = np.random.default_rng(0).normal(0.3, 1, (12, 6))
    order = [4, 1, 5, 0, 2, 3]
    contributions = np.empty(6)
    contributions[order] = [5, 4, 3, 2, 1, 0]

    def cosines(left: list[int]) -> list[float]:
        return [1 - scipy.spatial.distance.cosine(u[left], v[left]) for u, v in itertools.combinations(rows, 2)]

    original = cosines(list(range(6)))
    expected = {k: scipy.stats.pearsonr(original, cosines(order[k:])).statistic ** 2 for k in (1, 2, 3, 5)}
    assert informativity(rows, contributions) == pytest.approx(expected, abs=1e-12)
    rows = np.random.default_rng(1).normal(size=(30, 20))
    rows = np.insert(rows / np.linalg.norm(rows, axis=1, keepdims=True), 7, 5.0, axis=1)
    found = informativity(rows, rows.mean(axis=0) ** 2)
    assert found[1] == pytest.approx(1)
    assert found[10] < 0.9
    rows = np.random.default_rng(2).normal(size=(5, 384))
    assert list(informativity(rows, np.arange(384.0))) == [k for k in REMOVED if k < 384]
    assert list(informativity(rows[:, :2], np.arange(2.0))) == [1]
    assert informativity(np.column_stack([rows[:, :2], np.zeros(5)]), np.array([2.0, 1.0, 0.0]))[2] == 0
