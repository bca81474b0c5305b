import gc
import itertools
import weakref

import jax
import numpy as np
import pytest

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.errors import UserError
from simcse_jax.index import placed as placed_module
from simcse_jax.index.placed import Placed
from simcse_jax.index.top_k import Block

ROW = 4 * 12  # bytes of a row in float32


def blocks(*counts: int) -> list[Block]:
    ends = list(itertools.accumulate(counts))
    generator = np.random.default_rng(0)
    made = [generator.normal(size=(count, 12)).astype(np.float32) for count in counts]
    return [Block(rows, end - len(rows), len(rows)) for rows, end in zip(made, ends, strict=True)]


def free(monkeypatch, rows: int) -> None:
    monkeypatch.setattr(placed_module, "free_memory", lambda: rows * ROW)


@pytest.mark.parametrize(("storage", "there"), [("float32", [True, False, True]), ("bfloat16", [True, True, True])])
def test_blocks_that_fit_stay_on_the_devices(monkeypatch, storage, there):
    given = blocks(64, 64, 16)
    free(monkeypatch, 42)  # of each of two devices
    placed = Placed(data_mesh(jax.devices()[:2]), storage)
    first = list(placed.blocks(given))
    assert [isinstance(block.rows, jax.Array) for block in first] == there
    free(monkeypatch, 0)
    second = list(placed.blocks(given))
    assert [old.rows is new.rows for old, new in zip(first, second, strict=True) if isinstance(old.rows, jax.Array)]
    for block, whole in zip(second, given, strict=True):
        assert (block.first, block.count, str(block.rows.dtype)) == (whole.first, whole.count, storage)
        np.testing.assert_allclose(np.asarray(block.rows, np.float32), whole.rows, rtol=2**-8 * (storage != "float32"))


def test_a_block_mapped_from_a_file_is_known_as_long_as_it_is_there(tmp_path):
    np.save(tmp_path / "rows.npy", blocks(64)[0].rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    placed = Placed(data_mesh(jax.devices()[:1]))
    part = mapped[:32]
    list(placed.blocks([Block(part, 0, 32)]))
    placed.longest([Block(part, 0, 32)], "dot")
    reference = weakref.ref(part)
    del part
    gc.collect()
    assert reference() is not None  # otherwise another array could get its identity, and be taken for it
    list(placed.blocks([Block(mapped[32:], 0, 32)]))
    gc.collect()
    assert reference() is None


def test_an_element_beyond_16_bits_is_refused_with_its_row():
    given = blocks(16, 16)
    given[1].rows[3, 2] = 1e5
    mesh = data_mesh(jax.devices()[:1])
    with pytest.raises(UserError, match="row 19 of the index has an element beyond float16; choose another storage"):
        list(Placed(mesh, "float16").blocks(given))
    assert len(list(Placed(mesh, "bfloat16").blocks(given))) == 2


def test_the_longest_vector_and_a_block_that_was_replaced_is_forgotten():
    given, placed = blocks(16, 16), Placed(data_mesh(jax.devices()[:1]))
    for similarity, order in (("dot", 2), ("euclidean", 2), ("manhattan", 1)):
        length = max(np.linalg.norm(block.rows, order, axis=1).max() for block in given)
        assert length <= Placed(placed.mesh).longest(given, similarity) <= 1.001 * length
    assert placed.longest(given, "cosine") == pytest.approx(1, abs=1e-5)
    before = list(placed.blocks(given))
    after = list(placed.blocks([given[0], *blocks(16)]))
    assert after[0].rows is before[0].rows and len(placed._blocks) == 2
