import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.index.top_k import MAX_QUERIES, WHOLE, Best, Block, decoded, decoding_of, merge, on_devices, top_k
from simcse_jax.vectors.quantization import Quantization, ranges_of

MESH = data_mesh(jax.devices()[:2])
ROWS = np.random.default_rng(0).normal(size=(40, 21)).astype(np.float32)
ROWS[:, 3] = 0.5


def unit(rows: int, dimension: int, seed: int = 0) -> np.ndarray:
    array = np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def blocks(rows: np.ndarray, size: int) -> list[Block]:
    """Cut into blocks of one size, the last one padded with rows that would win if they counted."""
    made = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        made.append(Block(np.pad(part, ((0, size - len(part)), (0, 0)), constant_values=9.0), start, len(part)))
    return made


def brute_force(queries: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """In float64; of equal scores the lower row first."""
    scores = queries.astype(np.float64) @ rows.T.astype(np.float64)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


def test_it_equals_a_ranking_of_all_scores_in_float64_also_beyond_32_bits_and_of_codes():
    for count, queries, k in (
        (1, 3, 5),
        (7, 1, 5),
        (16, 3, 32),
        (17, 8, 1),
        (100, 3, 5),
        (100, 3, 32),
        (100, 8, 5),
        (2, 2 * MAX_QUERIES + 3, 5),
    ):
        rows, asked = unit(count, 12), unit(queries, 12, seed=1)
        scores, found = top_k(asked, blocks(rows, 16), k, MESH)
        expected, order = brute_force(asked, rows, k)
        there = min(k, count)
        assert scores.shape == found.shape == (queries, k)
        np.testing.assert_array_equal(found[:, :there], order)
        np.testing.assert_allclose(scores[:, :there], expected, atol=1e-6)
        assert np.isneginf(scores[:, there:]).all()
    few = unit(5, 16)
    rows = few[np.random.default_rng(2).integers(0, 5, 200)]  # each of them some forty times, over many blocks
    for asked in (few[:1], few):
        scores, found = top_k(asked, blocks(rows, 16), 64, MESH)
        for query, (of_query, numbers) in enumerate(zip(scores, found, strict=True)):
            twins = np.flatnonzero((rows == few[query]).all(axis=1))
            np.testing.assert_array_equal(numbers[: len(twins)], twins)
            assert len(set(of_query[: len(twins)])) == 1
    rows = np.zeros((16, 4), np.float32)  # zero and minus zero are equal
    rows[::2] = -0.0
    rows[:, 0] = np.where(np.arange(16) % 2, 1, -1)  # times 0
    _, found = top_k(np.array([[0, 1, 1, 1]], np.float32), blocks(rows, 16), 16, MESH)
    np.testing.assert_array_equal(found, [np.arange(16)])
    scores, found = top_k(np.zeros((0, 12), np.float32), blocks(unit(5, 12), 16), 3, MESH)
    assert scores.shape == found.shape == (0, 3)
    rows, asked = unit(100, 12), unit(3, 12, seed=1)
    exact, approximate = (top_k(asked, blocks(rows, 16), 5, MESH, recall) for recall in (None, 0.9))
    for one, other in zip(exact, approximate, strict=True):
        np.testing.assert_array_equal(one, other)
    rows = unit(10, 4)
    array = on_devices(rows, data_mesh(jax.devices()[:4]))
    np.testing.assert_array_equal(array, np.pad(rows, ((0, 4 * WHOLE - 10), (0, 0))))
    assert {shard.data.shape for shard in array.addressable_shards} == {(WHOLE, 4)}  # the sums of all have one order
    rows, asked = unit(64, 12), unit(3, 12, seed=1)
    far = np.array([0, 2**31 - 8, 2**33, 10**10])  # the first rows of blocks, as of a matrix of ten billion
    parts = [Block(rows[16 * place : 16 * place + 16], int(first), 16) for place, first in enumerate(far)]
    _, found = top_k(asked, parts, 64, MESH)
    _, order = brute_force(asked, rows, 64)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, far[order // 16] + order % 16)
    for precision, ranges in (("int8", ranges_of(ROWS)), ("ubinary", None)):
        kind = Quantization(precision, 21, ranges)
        codes = kind.encode(ROWS)
        found = decoded(jnp.asarray(codes), 21, decoding_of(kind))
        np.testing.assert_allclose(found, kind.decode(codes), rtol=1e-6, atol=1e-6)
    half = jnp.asarray(ROWS, jnp.bfloat16)
    found = decoded(half, 21, decoding_of(None))
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, half.astype(jnp.float32))


def steps(jaxpr) -> list:
    """All equations, those of called functions too."""
    found = []
    for equation in jaxpr.eqns:
        found.append(equation)
        for value in equation.params.values():
            value = getattr(value, "jaxpr", value)  # closed or, as of shard_map, not
            if hasattr(value, "eqns"):
                found += steps(value)
    return found


def test_a_step_holds_one_block_s_scores_multiplies_at_the_highest_precision_and_compiles_once_a_shape():
    for recall_target, chosen_by in ((None, "top_k"), (0.9, "approx_top_k")):
        queries, rows, k, dimension = 4, 64, 8, 12
        mesh, numbers = data_mesh(jax.devices()[:1]), np.zeros((1, queries, k), np.int32)
        best = Best(np.zeros((1, queries, k), np.float32), numbers, numbers)
        traced = jax.make_jaxpr(lambda q, x, b: merge(q, x, 128, 64, b, mesh=mesh, recall_target=recall_target))(
            np.zeros((queries, dimension), np.float32), np.zeros((rows, dimension), np.float32), best
        )
        made = steps(traced.jaxpr)
        assert max(variable.aval.size for step in made for variable in step.outvars) == queries * rows
        product = next(step for step in made if step.primitive.name == "dot_general")
        assert product.params["precision"] == (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)
        assert chosen_by in [step.primitive.name for step in made]
    merge.clear_cache()
    asked = unit(3, 20, seed=1)
    for count in (5, 64, 700):
        rows = unit(count, 20)
        cut = count // 32 * 32
        tail = [Block(b.rows, b.first + cut, b.count) for b in blocks(rows[cut:], 8)]
        _, found = top_k(asked, [*blocks(rows[:cut], 32), *tail], 8, MESH)
        np.testing.assert_array_equal(found[:, :5], brute_force(asked, rows, 5)[1])
    assert merge._cache_size() == 2


@pytest.mark.parametrize("devices", [8, *(pytest.param(few, marks=pytest.mark.slow) for few in (1, 3))])
def test_any_number_of_devices_finds_the_same_rows(devices):
    few = unit(40, 16)
    rows = few[np.random.default_rng(2).integers(0, 40, 190)]  # equal ones on all devices
    asked = unit(3, 16, seed=1)
    scores, found = top_k(asked, blocks(rows, 64), 32, data_mesh(jax.devices()[:devices]))
    two_scores, two = top_k(asked, blocks(rows, 64), 32, MESH)
    np.testing.assert_array_equal(found, two)
    np.testing.assert_allclose(scores, two_scores, atol=1e-6)
    for of_query, numbers in zip(scores, found, strict=True):
        assert [row for _, row in sorted(zip(-of_query, numbers, strict=True))] == numbers.tolist()
