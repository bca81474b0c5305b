import gc
import itertools
import weakref

import jax
import numpy as np
import pytest
from support.data import raises

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.index import placed as placed_module
from simcse_jax.index.placed import Placed
from simcse_jax.index.top_k import Block

ROW = 4 * 12  # bytes of a row in float32


def blocks(*counts: int) -> list[Block]:
    ends = list(itertools.accumulate(counts))
    generator = np.random.default_rng(0)
    made = [generator.normal(size=(count, 12)).astype(np.float32) for count in counts]
    return [Block(rows, end - len(rows), len(rows)) for rows, end in zip(made, ends, strict=True)]


@pytest.mark.parametrize(("storage", "there"), [("float32", [True, False, True]), ("bfloat16", [True, True, True])])
def test_blocks_that_fit_stay_on_the_devices(monkeypatch, storage, there):
    given = blocks(64, 64, 16)
    monkeypatch.setattr(placed_module, "free_memory", lambda: 42 * ROW)  # of each of two devices
    placed = Placed(data_mesh(jax.devices()[:2]), storage)
    first = list(placed.blocks(given))
    assert [isinstance(block.rows, jax.Array) for block in first] == there
    monkeypatch.setattr(placed_module, "free_memory", lambda: 0)
    second = list(placed.blocks(given))
    assert [old.rows is new.rows for old, new in zip(first, second, strict=True) if isinstance(old.rows, jax.Array)]
    for block, whole in zip(second, given, strict=True):
        assert (block.first, block.count, str(block.rows.dtype)) == (whole.first, whole.count, storage)
        np.testing.assert_allclose(np.asarray(block.rows, np.float32), whole.rows, rtol=2**-8 * (storage != "float32"))


@pytest.mark.slow
def test_a_mapped_block_is_known_while_it_is_there_and_a_replaced_one_forgotten(tmp_path):
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
    given, placed = blocks(16, 16), Placed(data_mesh(jax.devices()[:1]))
    for similarity, order in (("dot", 2), ("euclidean", 2), ("manhattan", 1)):
        length = max(np.linalg.norm(block.rows, order, axis=1).max() for block in given)
        assert length <= Placed(placed.mesh).longest(given, similarity) <= 1.001 * length
    assert placed.longest(given, "cosine") == pytest.approx(1, abs=1e-5)
    before, after = list(placed.blocks(given)), list(placed.blocks([given[0], *blocks(16)]))
    assert after[0].rows is before[0].rows and len(placed._blocks) == 2
    given[1].rows[3, 2] = 1e5
    raises("row 19 of the index has an element beyond float16", list, Placed(placed.mesh, "float16").blocks(given))
    assert len(list(Placed(placed.mesh, "bfloat16").blocks(given))) == 2
