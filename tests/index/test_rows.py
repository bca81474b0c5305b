import numpy as np
import pytest

from simcse_jax.index.rows import PART, aligned, compared, empty
from simcse_jax.index.similarity import prepared


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("count", [0, 1, PART, 2 * PART + 3])
def test_rows_are_made_in_parts_with_the_bits_of_all_at_once(count, dtype):
    embeddings = np.random.default_rng(count).standard_normal((count, 12)).astype(dtype)
    for similarity in ("cosine", "dot", "manhattan"):
        rows, lengths = compared(embeddings, similarity)
        assert rows.dtype == np.float32 and not np.shares_memory(rows, embeddings)
        assert rows.ctypes.data % 64 == 0 or not count  # without rows there is nothing to place
        np.testing.assert_array_equal(rows, prepared(embeddings, similarity).astype(np.float32))
        np.testing.assert_array_equal(lengths, np.linalg.norm(embeddings, axis=1, keepdims=True))


def test_a_length_that_is_not_finite_is_in_its_row():
    embeddings = np.ones((PART + 9, 3), np.float32)
    embeddings[PART + 2, 1], embeddings[PART + 4, 0] = np.nan, np.inf
    _, lengths = compared(embeddings, "dot")
    assert np.flatnonzero(~np.isfinite(lengths)).tolist() == [PART + 2, PART + 4]


def test_an_empty_array_is_aligned():
    for dtype in (np.float32, np.uint8):
        assert empty((3, 5), dtype).ctypes.data % 64 == 0 and empty((3, 5), dtype).dtype == dtype


def test_given_rows_are_aligned_so_that_a_cpu_takes_them_as_they_are():
    buffer = np.zeros(64 * 12 * 4 + 128, np.uint8)
    start = -buffer.ctypes.data % 64
    for shift in (0, 16):
        rows = buffer[start + shift :][: 64 * 12 * 4].view(np.float32).reshape(64, 12)
        rows[:] = np.arange(64 * 12).reshape(64, 12)
        found = aligned(rows)
        assert (found is rows) == (shift == 0) and found.ctypes.data % 64 == 0
        np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(aligned(np.asfortranarray(rows)), rows)
