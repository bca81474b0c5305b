import os

import pytest
from support.embedding_folders import begin

from simcse_jax.embeddings.blocks import make_block
from simcse_jax.embeddings.manifest import complete, finish, missing, read_manifest
from simcse_jax.embeddings.plan import blocks_of
from simcse_jax.errors import UserError


@pytest.fixture
def made(encoder, sources, tmp_path):
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources)
    blocks = blocks_of(folder, plan)
    for block in blocks:
        make_block(folder, plan, block, encoder)
    return folder, plan, blocks


def test_it_lists_all_blocks_and_what_is_missing_is_found(made):
    folder, plan, blocks = made
    (folder / ".embeddings-00000-00000.parquet.0.tmp").touch()  # of a killed process
    assert read_manifest(folder) is None and not missing(folder, blocks)
    found = finish(folder, plan, blocks)
    assert (found.rows, found.dimension, found.cut) == (25, 32, 0)
    assert found.files == [[block.file, block.row] for block in blocks]
    assert complete(folder, blocks) == read_manifest(folder) == found
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    (folder / blocks[2].file).unlink()
    assert complete(folder, blocks) is None and missing(folder, blocks) == [blocks[2]]


def test_sources_that_were_written_to_meanwhile_are_named(made, sources):
    folder, plan, blocks = made
    os.utime(sources[1], (1, 1))
    with pytest.raises(UserError, match=r"b\.txt: was changed since"):
        finish(folder, plan, blocks)
    assert read_manifest(folder) is None
