import jax
import numpy as np
import pytest

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.encoding.quantization import ranges_of
from simcse_jax.index.placed import Placed
from simcse_jax.index.rescore import quantization_for, rescored, rescored_top_k, vectors_in
from simcse_jax.index.similarity import prepared, similarities
from simcse_jax.index.top_k import Block

MESH = data_mesh(jax.devices()[:2])


def rows_of(count: int, seed: int, dimension: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def blocks(rows: np.ndarray, size: int = 128) -> list[Block]:
    return [Block(rows[at : at + size], at, len(rows[at : at + size])) for at in range(0, len(rows), size)]


@pytest.mark.parametrize(("storage", "similarity"), [("int8", "euclidean"), ("int8", "dot"), ("binary", "cosine")])
def test_the_best_of_the_candidates_by_their_true_scores(storage, similarity):
    rows, queries = (prepared(rows_of(count, seed), similarity) for count, seed in ((512, 0), (3, 1)))
    kind = quantization_for(storage, 24, ranges_of(rows) if storage == "int8" else None)
    placed = Placed(MESH, storage, quantization=kind)
    scores, found = rescored_top_k(queries, blocks(rows), 4, placed, 8, similarity=similarity)
    name = "dot" if similarity == "cosine" else similarity
    small = similarities(queries.astype(np.float64), kind.decode(kind.encode(rows)).astype(np.float64), name)
    true = similarities(queries.astype(np.float64), rows.astype(np.float64), name)
    for query in range(3):
        candidates = np.argsort(-small[query])[:32]
        best = candidates[np.argsort(-true[query, candidates])[:4]]
        assert found[query].tolist() == best.tolist()
        np.testing.assert_allclose(scores[query], true[query, best], atol=1e-6)
    assert next(iter(placed.blocks(blocks(rows)))).rows.dtype == kind.dtype


def test_rows_that_are_kept_in_bytes_are_read_as_numbers():
    rows = rows_of(300, 2)
    kind = quantization_for("int8", 24, ranges_of(rows))
    wanted = np.array([-1, 0, 127, 128, 299])
    found = vectors_in(blocks(kind.encode(rows)), kind)(wanted)
    np.testing.assert_array_equal(found[1:], kind.decode(kind.encode(rows))[wanted[1:]])


def test_what_was_not_found_stays_last_and_equal_scores_are_ordered_by_row():
    rows = np.ones((4, 24), np.float32)
    rough = np.array([[1, 1, -np.inf]], np.float32)
    scores, found = rescored(rows[:1], rough, np.array([[3, 1, -1]]), vectors_in(blocks(rows)), 3, "dot")
    assert found.tolist() == [[1, 3, -1]] and scores.tolist() == [[24, 24, -np.inf]]
