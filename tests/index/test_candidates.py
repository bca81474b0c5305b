import jax
import numpy as np
import pytest

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.index import candidates
from simcse_jax.index.candidates import bounds, quantization_for, refined_top_k, rescored, vectors_in
from simcse_jax.index.placed import DTYPES, Placed
from simcse_jax.index.top_k import Block, decoding_of, top_k
from simcse_jax.vectors.quantization import ranges_of
from simcse_jax.vectors.similarity import prepared, similarities

MESH = data_mesh(jax.devices()[:2])


def rows_of(count: int, seed: int, dimension: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def blocks(rows: np.ndarray, size: int = 256) -> list[Block]:
    return [Block(rows[at : at + size], at, len(rows[at : at + size])) for at in range(0, len(rows), size)]


@pytest.mark.parametrize(("storage", "similarity"), [("int8", "euclidean"), ("int8", "dot"), ("binary", "cosine")])
def test_the_best_of_the_candidates_by_their_true_scores(storage, similarity):
    rows, queries = (prepared(rows_of(count, seed), similarity) for count, seed in ((512, 0), (3, 1)))
    kind = quantization_for(storage, 24, ranges_of(rows) if storage == "int8" else None)
    placed = Placed(MESH, storage, kind)
    rough = top_k(queries, placed.blocks(blocks(rows)), 32, MESH, None, similarity, decoding_of(kind))
    scores, found = rescored(queries, *rough, vectors_in(blocks(rows)), 4, similarity)
    name = "dot" if similarity == "cosine" else similarity
    small = similarities(queries.astype(np.float64), kind.decode(kind.encode(rows)).astype(np.float64), name)
    true = similarities(queries.astype(np.float64), rows.astype(np.float64), name)
    for query in range(3):
        candidates = np.argsort(-small[query])[:32]
        best = candidates[np.argsort(-true[query, candidates])[:4]]
        assert found[query].tolist() == best.tolist()
        np.testing.assert_allclose(scores[query], true[query, best], atol=1e-6)
    assert next(iter(placed.blocks(blocks(rows)))).rows.dtype == kind.dtype


def test_rows_in_bytes_are_read_as_numbers_equal_scores_ordered_and_few_vectors_held_at_once(monkeypatch):
    rows = rows_of(300, 2)
    kind = quantization_for("int8", 24, ranges_of(rows))
    wanted = np.array([-1, 0, 127, 128, 299])
    found = vectors_in(blocks(kind.encode(rows)), kind)(wanted)
    np.testing.assert_array_equal(found[1:], kind.decode(kind.encode(rows))[wanted[1:]])
    rows, rough = np.ones((4, 24), np.float32), np.array([[1, 1, -np.inf]], np.float32)
    scores, found = rescored(rows[:1], rough, np.array([[3, 1, -1]]), vectors_in(blocks(rows)), 3, "dot")
    assert found.tolist() == [[1, 3, -1]] and scores.tolist() == [[24, 24, -np.inf]]  # what was not found stays last
    together, scores = [], candidates._scores
    counted = lambda queries, *rest: together.append(len(queries)) or scores(queries, *rest)  # noqa: E731
    monkeypatch.setattr(candidates, "_scores", counted)
    monkeypatch.setattr(candidates, "MAX_QUERIES", 2)
    rows = prepared(close_rows(5), "cosine")
    _, found = refined_top_k(rows, blocks(rows), 4, Placed(data_mesh(jax.devices()[:1]), "float16"))
    assert together == [2, 2, 1] and found[:, 0].tolist() == [0, 1, 2, 3, 4]


def close_rows(count: int, dimension: int = 12, spread: float = 1e-3) -> np.ndarray:
    """Around one point: 16 bits cannot tell their order."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=dimension) + spread * generator.normal(size=(count, dimension))
    return rows.astype(np.float32)


PAIRWISE = [("float16", "cosine"), ("bfloat16", "dot"), ("float16", "euclidean"), ("bfloat16", "manhattan")]


@pytest.mark.parametrize(("storage", "similarity"), PAIRWISE)
def test_it_finds_the_true_rows_where_16_bits_alone_would_not(storage, similarity):
    rows = prepared(close_rows(1024), similarity)
    queries = prepared(close_rows(5)[3:] + np.float32(1e-3), similarity)
    scores, found = refined_top_k(queries, blocks(rows), 8, Placed(MESH, storage), similarity=similarity)
    name = "dot" if similarity == "cosine" else similarity
    true = similarities(queries.astype(np.float64), rows.astype(np.float64), name)
    order = np.argsort(-true, axis=1, kind="stable")
    np.testing.assert_allclose(scores, np.take_along_axis(true, order[:, :8], axis=1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(true, found, axis=1), scores, rtol=1e-6, atol=1e-6)
    rough = similarities(queries, rows.astype(DTYPES[storage]).astype(np.float32), name)
    assert (np.argsort(-rough, axis=1, kind="stable")[:, :8] != order[:, :8]).any()


def test_a_query_is_asked_again_until_its_rows_are_proven_or_all_there_are(monkeypatch):
    asked = []  # the type of the elements, and how many rows to find

    def counted(queries, given, k, *rest):
        given = list(given)
        asked.append((str(given[0].rows.dtype), k))
        return top_k(queries, given, k, *rest)

    monkeypatch.setattr(candidates, "top_k", counted)
    far = np.random.default_rng(0).normal(size=(3000, 12)).astype(np.float32)
    rows = prepared(np.concatenate([close_rows(2000, spread=0), far]), "cosine")  # 2,000 equal ones
    alone, among = prepared(far[:1], "cosine"), rows[:1]
    placed = Placed(MESH, "float16")
    _, found = refined_top_k(np.concatenate([alone, among]), blocks(rows), 4, placed)
    assert found[1].tolist() == [0, 1, 2, 3]
    assert found[0, 0] == 2000
    assert asked == [("float16", 64), ("float16", 512), ("float32", 4)]
    asked.clear()
    np.testing.assert_array_equal(refined_top_k(alone, blocks(rows), 4, placed)[1], found[:1])
    assert asked == [("float16", 64)]  # proven at once
    asked.clear()
    refined_top_k(among, blocks(rows), 4, placed, 0.9)
    assert asked == [("float16", 64)]  # an approximate search is not asked again
    rows = prepared(close_rows(5), "cosine")
    scores, found = refined_top_k(rows[:2], blocks(rows), 8, Placed(MESH, "bfloat16"))
    assert np.isneginf(scores[:, 5:]).all()
    assert sorted(found[0, :5].tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 300.0])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_no_score_is_further_from_the_true_one_than_the_bound(storage, similarity, scale):
    rows = prepared(np.random.default_rng(0).normal(size=(2000, 48)).astype(np.float32) * np.float32(scale), similarity)
    queries = prepared(np.random.default_rng(1).normal(size=(4, 48)).astype(np.float32), similarity)
    name = "dot" if similarity == "cosine" else similarity
    stored = rows.astype(DTYPES[storage]).astype(np.float32)
    error = np.abs(similarities(queries, stored, name) - similarities(*map(np.float64, (queries, rows)), name))
    longest = Placed(data_mesh(jax.devices()[:1]), storage).longest(blocks(rows), similarity)
    limits = bounds(queries, longest, storage, similarity)
    assert (error.max(axis=1) <= limits).all()
    assert scale != 1 or (limits <= 50 * error.max(axis=1)).all()  # nor is it idle
    # Products too small for a device are in it.
    assert bounds(np.full((1, 12), 1e-30), 1e-30, storage, "dot") >= 12 * 2.0**-126
    assert bounds(np.full((1, 12), 1e-30), 1e-30, storage, "euclidean") >= (12 * 2.0**-126) ** 0.5
