import numpy as np

from simcse_jax.index.faiss import FaissSearch


def unit(rows: int, seed: int, dimension: int = 8) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def test_a_flat_index_ranks_all_products_and_cells_are_made_where_there_are_rows_enough(monkeypatch):
    rows, queries = unit(50, 0), unit(3, 1)
    search = FaissSearch(8)
    search.add(rows[:20])
    search.add(rows[20:])
    assert len(search) == 50
    scores, numbers = search.search(queries, 5)
    products = queries @ rows.T
    assert numbers.tolist() == np.argsort(-products, axis=1)[:, :5].tolist()
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :5], atol=1e-6)
    search = FaissSearch(8)
    search.add(unit(2, 0))
    scores, _ = search.search(unit(1, 1), 4)
    assert np.isfinite(scores[0]).tolist() == [True, True, False, False] and scores[0, -1] == -np.inf
    rows = unit(400, 0)
    few, many = FaissSearch(8, rows[:30]), FaissSearch(8, rows)
    for search in (few, many):
        search.add(rows)
    assert few.search(rows, 1)[1][:, 0].tolist() == list(range(400))  # too few for a cell: flat, and exact
    assert np.mean(many.search(rows, 1)[1][:, 0] == np.arange(400)) > 0.9
