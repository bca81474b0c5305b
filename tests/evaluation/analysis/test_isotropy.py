import itertools

import numpy as np
import pytest

from simcse_jax.evaluation.analysis import isotropy


def cosine(u, v) -> float:
    return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))


def pairs(rows) -> float:
    """The mean over pairs of different rows, one by one."""
    return float(np.mean([cosine(u, v) for u, v in itertools.combinations(rows, 2)]))


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.4, 1, shape)


def test_the_mean_cosine_needs_no_pairs():
    rows = random(3, 7, 5) * np.arange(1, 8)[:, None]  # of any length
    assert isotropy.mean_cosine(rows) == pytest.approx([pairs(layer) for layer in rows], abs=1e-12)


def test_self_similarity_is_the_mean_over_the_contexts_of_a_type():
    types = [random(count, 5, seed=count) for count in (2, 3, 9)]
    sums = np.stack([isotropy.normalize(rows).sum(axis=0) for rows in types])
    found = isotropy.self_similarity(sums, np.array([2, 3, 9]))
    assert found == pytest.approx([pairs(rows) for rows in types], abs=1e-12)


def test_self_similarity_is_averaged_over_types_or_over_pairs():
    types, contexts = np.array([[0.5, 0.2], [0.1, 0.9]]), np.array([2, 4])
    assert isotropy.average(types, contexts, "types") == pytest.approx([0.35, 0.5])
    assert isotropy.average(types, contexts, "pairs") == pytest.approx([(0.5 + 6 * 0.2) / 7, (0.1 + 6 * 0.9) / 7])


def test_intra_sentence_similarity_is_with_the_mean_of_the_embeddings_as_they_are():
    tokens = random(4, 6) * np.array([1, 10, 1, 1])[:, None]  # a long one draws the mean to itself
    expected = np.mean([cosine(token, tokens.mean(axis=0)) for token in tokens])
    assert isotropy.intra_sentence_similarity(tokens) == pytest.approx(expected, abs=1e-12)
    assert isotropy.intra_sentence_similarity(np.stack([tokens, tokens[::-1]])) == pytest.approx([expected] * 2)
    assert isotropy.intra_sentence_similarity(tokens[:1]) == pytest.approx(1)


def test_the_norm_is_the_mean_length():
    assert isotropy.l2_norm(np.array([[3.0, 4.0], [0.0, 1.0]])) == pytest.approx(3)


def test_sums_of_many_nearly_orthogonal_float32_embeddings_do_not_lose_what_is_left():
    """n is subtracted from ‖Σ û‖², which is hardly more: of these rows the result is exactly −1 / (n − 1)."""
    half = random(20_000, 16).astype(np.float32)
    rows = np.concatenate([half, -half])
    assert isotropy.mean_cosine(rows) == pytest.approx(-1 / (len(rows) - 1), rel=1e-9)


def test_a_zero_embedding_has_the_cosine_zero():
    assert isotropy.normalize(np.zeros((2, 3))).tolist() == [[0, 0, 0]] * 2
