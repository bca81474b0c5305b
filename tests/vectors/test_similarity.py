import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from support.data import raises

from simcse_jax.index.index import Index
from simcse_jax.models.config import SIMILARITIES
from simcse_jax.vectors.similarity import PART, aligned, compared, empty, pairwise, prepared, scores, similarities

A, B = (np.random.default_rng(seed).normal(size=(rows, 6)).astype(np.float32) for seed, rows in ((0, 5), (1, 40)))
EXPECTED = {"cosine": 1 - cdist(A, B, "cosine"), "dot": A @ B.T}
EXPECTED |= {"euclidean": -cdist(A, B), "manhattan": -cdist(A, B, "cityblock")}


@pytest.mark.parametrize("name", SIMILARITIES)
def test_they_are_scipy_s_on_the_host_and_on_the_device_and_an_index_ranks_by_them(name):
    np.testing.assert_allclose(similarities(A, B, name), EXPECTED[name], rtol=1e-5, atol=1e-6)
    found = scores(jnp.array(prepared(A, name)), jnp.array(prepared(B, name)), name)
    np.testing.assert_allclose(found, EXPECTED[name], rtol=1e-5, atol=1e-6)
    assert similarities(A[:0], B, name).shape == (0, 40)
    np.testing.assert_allclose(pairwise(A, B[:5], name), np.diag(EXPECTED[name][:, :5]), rtol=1e-5, atol=1e-6)
    index = Index(6, name)
    index.add([str(row) for row in range(40)], B)
    for found, expected in zip(index.search(A, 3), EXPECTED[name], strict=True):
        assert [result.row for result in found] == np.argsort(-expected)[:3].tolist()
        np.testing.assert_allclose([result.score for result in found], np.sort(expected)[::-1][:3], rtol=1e-5)
    assert len(index.search(A[:1], 40, threshold=float(np.sort(EXPECTED[name][0])[-2]))[0]) == 2


def test_rows_are_made_in_aligned_parts_with_the_bits_of_all_at_once_and_others_refused():
    for count, dtype in ((0, np.float32), (1, np.float64), (PART, np.float16), (2 * PART + 3, np.float32)):
        embeddings = np.random.default_rng(count).standard_normal((count, 12)).astype(dtype)
        for similarity in ("cosine", "dot", "manhattan"):
            rows, lengths = compared(embeddings, similarity)
            assert rows.dtype == np.float32 and not np.shares_memory(rows, embeddings)
            assert rows.ctypes.data % 64 == 0 or not count  # without rows there is nothing to place
            np.testing.assert_array_equal(rows, prepared(embeddings, similarity).astype(np.float32))
            np.testing.assert_array_equal(lengths, np.linalg.norm(embeddings, axis=1, keepdims=True))
    buffer = np.zeros(64 * 12 * 4 + 128, np.uint8)
    start = -buffer.ctypes.data % 64
    for shift in (0, 16):
        rows = buffer[start + shift :][: 64 * 12 * 4].view(np.float32).reshape(64, 12)
        rows[:] = np.arange(64 * 12).reshape(64, 12)
        found = aligned(rows)
        assert (found is rows) == (shift == 0) and found.ctypes.data % 64 == 0
        np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(aligned(np.asfortranarray(rows)), rows)
    assert empty((3, 5), np.uint8).ctypes.data % 64 == 0 and empty((3, 5), np.uint8).dtype == np.uint8
    raises("similarity_fn_name='maxsim': not one of cosine, dot", similarities, A, B, "maxsim")
    raises("not one of cosine, dot", Index, 6, "maxsim")
    raises("compared by cosine; the model's have 6, compared by dot", Index(6).check_takes, 6, "dot")
    embeddings = np.ones((PART + 9, 3), np.float32)
    embeddings[PART + 2, 1], embeddings[PART + 4, 0] = np.nan, np.inf
    _, lengths = compared(embeddings, "dot")
    assert np.flatnonzero(~np.isfinite(lengths)).tolist() == [PART + 2, PART + 4]
