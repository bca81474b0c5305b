import itertools
import os
import pickle
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support import ROOT, finish, xla_flags
from support.data import raises

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.index import index as index_module
from simcse_jax.index.index import Index, Result
from simcse_jax.vectors.similarity import prepared

DIMENSION = 12


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(index_module, "LARGE", 64)
    monkeypatch.setattr(index_module, "SMALL", 16)
    monkeypatch.setattr(index_module, "data_mesh", lambda devices: data_mesh(devices[:2]))  # compiles faster


def embeddings(rows: int, seed: int = 0) -> np.ndarray:
    """Of any length, as an encoder gives them."""
    return np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32) * 3


def filled(*counts: int, precision: str = "float32") -> tuple[Index, np.ndarray]:
    """An index to which so many rows have been added one time after the other, and all that it should hold."""
    index, rows = Index(DIMENSION, precision=precision), embeddings(sum(counts))
    for end, count in zip(itertools.accumulate(counts), counts, strict=True):
        index.add([f"sentence {row}" for row in range(end - count, end)], rows[end - count : end])
    return index, rows / np.linalg.norm(rows, axis=1, keepdims=True)


def expected(queries: np.ndarray, rows: np.ndarray, top_k: int, threshold: float) -> list[list[tuple[str, int]]]:
    cosines = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float64) @ rows.T
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :top_k]
    best = ([row for row in rows if of[row] >= threshold] for rows, of in zip(order, cosines, strict=True))
    return [[(f"sentence {row}", row) for row in rows] for rows in best]


def found(index: Index, *args, **kwargs) -> list[list[tuple[str, int]]]:
    return [[result[:2] for result in each] for each in index.search(*args, **kwargs)]


@pytest.mark.parametrize(("count", "top_k", "threshold"), [(1, 5, 0.3), (16, 5, 0.3), (65, 300, -1.0), (200, 5, 0.3)])
def test_it_finds_what_all_cosines_sorted_give(count, top_k, threshold):
    index, rows = filled(count)
    for queries in (embeddings(1, seed=1), embeddings(5, seed=1)):
        assert found(index, queries, top_k, threshold) == expected(queries, rows, top_k, threshold)
    assert sum(map(len, expected(queries, rows, top_k, threshold))) > 0 or count == 1


@pytest.mark.parametrize("storage", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_vectors_of_16_bits_find_the_same_also_after_more_were_added(storage):
    index, rows = filled(150)
    queries = embeddings(3, seed=1)
    assert found(index, queries, 5, 0.3, storage=storage) == expected(queries, rows, 5, 0.3)
    index.add(["one more"], queries[:1])
    assert index.search(queries[:1], 1, storage=storage) == [[("one more", 150, pytest.approx(1, abs=1e-6))]]
    assert found(pickle.loads(pickle.dumps(index)), queries, 3) == found(index, queries, 3, storage=storage)


@pytest.mark.parametrize("counts", [(1, 1, 1), (16, 1), (60, 3, 1, 70), (5, 200, 5)])
def test_rows_that_are_added_are_numbered_on(counts):
    index, rows = filled(*counts)
    assert len(index) == sum(counts)
    np.testing.assert_allclose(np.concatenate(list(index.embeddings())), rows, atol=1e-6)
    queries = embeddings(3, seed=1)
    assert found(index, queries, 5, -1) == expected(queries, rows, 5, -1)
    before = [block.rows for block in index.blocks()]
    index.add(["one more"], queries[:1])
    after = [block.rows for block in index.blocks()]
    large, rest = divmod(len(index), 64)
    assert [len(part) for part in after] == [64] * large + [16] * -(-rest // 16)
    assert all(a is b for a, b in zip(after[:-1], before, strict=False))  # the blocks that are there are left alone
    assert index.search(queries, 1)[0] == [Result("one more", sum(counts), pytest.approx(1, abs=1e-6))]


def test_processes_compare_a_row_of_each_block(monkeypatch):
    said = []
    monkeypatch.setattr(index_module, "agree", said.append)
    index, _ = filled(200)
    for _ in range(2):
        index.search(embeddings(1), 1)
        list(index.blocks())[1].rows[0] *= 0.5
    assert said[0]["the search"] == said[1]["the search"] and said[0]["the index"] != said[1]["the index"]


@pytest.mark.parametrize("counts", [(0, 3), (3, 0), (64, 64), (101, 150)])
def test_an_index_after_another_one_is_as_if_its_sentences_had_been_added(counts):
    rows, more = embeddings(counts[0]), embeddings(counts[1], seed=5)
    index, other, whole = Index(DIMENSION), Index(DIMENSION), Index(DIMENSION)
    for each, part in ((index, rows), (other, more), (whole, rows), (whole, more)):
        each.add([f"sentence {len(each) + place}" for place in range(len(part))], part)
    index.extend(other)
    assert index.sentences == whole.sentences[: counts[0]] + other.sentences
    for block, wanted in zip(index.blocks(), whole.blocks(), strict=True):
        assert (block.first, block.count) == (wanted.first, wanted.count)
        np.testing.assert_array_equal(block.rows, wanted.rows)


def test_duplicates_keep_their_rows_the_threshold_is_included_and_a_zero_has_cosine_zero():
    index, row = Index(DIMENSION), embeddings(1)
    index.add(["a", "b", "a"], np.concatenate([row, -row, row]))
    index.add(["a"] * 100, np.repeat(row, 100, axis=0))
    assert [result.row for result in index.search(row, 200, 0.5)[0]] == [0, *range(2, 103)]
    raises("top_k=", index.search, row, 0)
    index = Index(2)
    index.add(["along", "across", "against"], np.array([[2.0, 0], [0, 1], [-1, 0]], np.float32))
    query = np.array([[1.0, 0]], np.float32)
    assert index.search(query, 5, 1.0) == [[("along", 0, 1.0)]]
    assert index.search(query, 5, 0.0) == [[("along", 0, 1.0), ("across", 1, 0.0)]]
    assert index.search(query, 2, -1.0) == [[("along", 0, 1.0), ("across", 1, 0.0)]]
    assert index.search(query[:0]) == [] and Index(DIMENSION).search(embeddings(2)) == [[], []]
    assert (len(filled(0)[0]), list(filled(0)[0].blocks())) == (0, [])
    index = Index(DIMENSION)
    index.add(["nothing"], np.zeros((1, DIMENSION), np.float32))
    assert index.search(embeddings(1), 1, -1) == [[("nothing", 0, 0.0)]]
    wrong = np.full((2, DIMENSION), [[1.0], [np.nan]], np.float32)
    raises("embedding of sentence 1, 'b', is not finite", index.add, ["a", "b"], wrong)
    assert len(index) == 1
    rows = np.eye(4, dtype=np.float32)
    rows[2, 1] = np.nan
    raises(
        "row 2 of the index has a score that is not finite",
        Index(rows.shape[1]).keep(list("abcd"), rows).search,
        rows[:1],
        1,
    )


@pytest.mark.parametrize("counts", [(3,), (300, 30, 500)])
def test_faiss_finds_the_same(counts):
    index, rows = filled(counts[0])
    queries = embeddings(4, seed=1)
    for more in counts[1:]:
        found(index, queries, 5, -1, backend="faiss")
        rows = np.concatenate([rows, embeddings(more, seed=more)])
        index.add([f"sentence {row}" for row in range(len(index), len(index) + more)], rows[-more:])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert found(index, queries, 400, 0.2, backend="faiss") == expected(queries, rows, 400, 0.2)
    approximate = found(index, queries, 5, -1, backend="faiss", approximate=True)
    hits = [set(some) & set(all_) for some, all_ in zip(approximate, expected(queries, rows, 5, -1), strict=True)]
    assert sum(map(len, hits)) >= 0.9 * 4 * min(5, len(rows))


def test_threads_that_search_first_share_one_copy_in_faiss(monkeypatch):
    """FAISS is slow and releases Python's lock while rows are added: here it waits in their middle."""
    index, added = filled(100)[0], []

    class Slow(list):
        def __init__(self, *_):
            super().__init__()

        def add(self, rows):
            before = len(self)
            time.sleep(0.02)
            self[before:] = rows
            added.append(len(rows))

        def search(self, queries, k):
            return np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64)

    monkeypatch.setattr(index_module, "FaissSearch", Slow)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: index.search(embeddings(1), 1, backend="faiss"), range(4)))
    assert sum(added) == 100 and [len(faiss) for faiss, _ in index._faiss.values()] == [100]


SEARCHER = """
import pickle, sys
import jax
from simcse_jax.errors import UserError
from simcse_jax.index import index as index_module
from simcse_jax.index.faiss import FaissSearch
folder, port, process = sys.argv[1:]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(process))
index_module.LARGE, index_module.SMALL = 64, 16
index, queries = pickle.load(open(f"{folder}/asked", "rb"))
found = [index.search(queries, 5, storage=storage) for storage in ("float32", "float16")]
assert jax.device_count() == 2 * jax.local_device_count() == 4
pickle.dump(found, open(f"{folder}/found-{process}", "wb"))
try:
    index.search(queries[int(process) :], 5)
except UserError as error:
    sys.exit(str(error))
"""


@pytest.mark.slow
def test_several_processes_find_what_one_finds_and_must_ask_for_the_same(tmp_path):
    index, _ = filled(200)
    queries = embeddings(4, seed=1)
    (tmp_path / "asked").write_bytes(pickle.dumps((index, queries)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = {"cwd": ROOT, "env": {**os.environ, "XLA_FLAGS": xla_flags(2)}, "text": True}
    options |= dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    commands = [[sys.executable, "-c", SEARCHER, tmp_path, port, str(number)] for number in range(2)]
    ended = finish([subprocess.Popen(command, **options) for command in commands])
    assert all("the search: differs between process 1 and process 0" in error for *_, error in ended), ended
    expected = index.search(queries, 5)
    for process, storage in itertools.product(range(2), range(2)):
        results = pickle.loads((tmp_path / f"found-{process}").read_bytes())[storage]
        assert [[each[:2] for each in one] for one in results] == [[each[:2] for each in one] for one in expected]
        scores = [[each.score for one in all_ for each in one] for all_ in (results, expected)]
        np.testing.assert_allclose(*scores, atol=1e-6)


BOTH = [("int8", "faiss"), ("binary", "jax")]
BOTH += [pytest.param(*each, marks=pytest.mark.slow) for each in (("int8", "jax"), ("binary", "faiss"))]


@pytest.mark.parametrize(("precision", "backend"), BOTH)
def test_rows_in_bytes_and_bits_are_scored_as_the_numbers_that_they_stand_for(precision, backend):
    index, true = filled(100, 70, precision=precision)
    rows = np.concatenate(list(index.embeddings()))
    assert index.quantization.width == next(index.stored()).shape[1] == {"int8": 12, "binary": 2}[precision]
    assert np.abs(rows - true)[:100].max() < {"int8": 0.02, "binary": 1}[precision]  # later ones may be out of range
    queries = prepared(embeddings(5, seed=1), "cosine")
    more = {"rescore": 200} if (backend, precision) == ("faiss", "binary") else {}
    products = queries.astype(np.float64) @ rows.astype(np.float64).T
    for of_query, each in zip(index.search(queries, 5, backend=backend, **more), products, strict=True):
        np.testing.assert_allclose([one.score for one in of_query], -np.sort(-each)[:5], atol=1e-5)
        np.testing.assert_allclose([one.score for one in of_query], each[[one.row for one in of_query]], atol=1e-5)
    if backend == "faiss" and precision == "int8":  # the numbers of FAISS's own codes
        np.testing.assert_allclose(index._faiss[False, "float32"][0]._index.reconstruct_n(0, 170), rows, atol=1e-6)


@pytest.mark.parametrize(("storage", "backend"), BOTH)
def test_copies_in_bytes_and_bits_find_candidates_for_rows_in_float32(storage, backend):
    index, _ = filled(100, 70)
    queries = embeddings(5, seed=1)
    exact = index.search(queries, 5)
    for approximate in (False, True):
        found = index.search(queries, 5, storage=storage, rescore=40, backend=backend, approximate=approximate)
        assert [[one.row for one in each] for each in found] == [[one.row for one in each] for each in exact]
        scores, expected = ([[one.score for one in each] for each in results] for results in (found, exact))
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    few = index.search(queries, 5, storage=storage, rescore=1, backend=backend)
    rows_of = [[{one.row for one in each} for each in results] for results in (few, exact)]
    assert (rows_of[0] != rows_of[1]) == (storage == "binary")
    assert (index.ranges is None) == (storage == "binary")


def test_rows_added_later_have_the_ranges_of_the_first_unless_those_were_few():
    index, _ = filled(100, precision="int8")
    ranges = index.ranges.copy()
    other = Index(DIMENSION, precision="int8", ranges=ranges)
    other.add(["far"], 100 * embeddings(1, seed=5))
    index.extend(other)
    np.testing.assert_array_equal(index.ranges, ranges)
    assert index.search(embeddings(1, seed=5), 1)[0][0].sentence == "far"
    rows = embeddings(50)
    rows[:, 4] = 0.5
    constant = Index(DIMENSION, "dot", "int8")
    constant.add([""] * 50, rows)
    np.testing.assert_array_equal(np.concatenate(list(constant.embeddings()))[:, 4], rows[:, 4])  # exactly
    raises("single embedding", Index(DIMENSION, precision="int8").add, ["one"], embeddings(1))
    raises("ranges: of shape (2, 3)", Index, DIMENSION, precision="int8", ranges=np.zeros((2, 3), np.float32))
    one = Index(DIMENSION, precision="int8", ranges=2 * ranges)
    one.add(["one"], embeddings(1))
    for backend in ("jax", "faiss"):
        index, rows = Index(DIMENSION), embeddings(150)
        index.add(["first"], rows[:1])
        assert index.search(rows[:1], 1, storage="int8", backend=backend)[0][0].row == 0  # all dimensions are constant
        index.add([""] * 149, rows[1:])
        found = index.search(rows, 1, storage="int8", rescore=1, backend=backend)
        assert [each[0].row for each in found] == list(range(150))
        ranges = index.ranges
        index.add([""] * 20, embeddings(20, seed=9) * 2)
        index.search(rows[:1], 1, storage="int8", backend=backend)
        assert index.ranges is ranges
