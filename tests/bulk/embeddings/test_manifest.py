import os

import pytest
from support.embedding_folders import begin
from support.object_store import NEEDS_GCSFS

from simcse_jax.bulk.embeddings.blocks import make_block
from simcse_jax.bulk.embeddings.manifest import complete, finish, missing, read_manifest
from simcse_jax.bulk.embeddings.plan import blocks_of
from simcse_jax.errors import UserError
from simcse_jax.host import locks as stored
from simcse_jax.host.locks import this_job
from simcse_jax.host.storage import as_path


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
    assert read_manifest(folder, plan) is None and not missing(folder, blocks)
    found = finish(folder, plan, blocks)
    assert (found.rows, found.dimension, found.cut) == (25, 32, 0)
    assert found.files == [[block.file, block.row] for block in blocks]
    assert complete(folder, plan, blocks) == read_manifest(folder, plan) == found
    own = {".plan.json", ".rows-00000.json", ".rows-00001.json", ".embeddings.json"}
    assert {path.name for path in folder.iterdir()} == own | {block.file for block in blocks}
    (folder / blocks[2].file).unlink()
    assert complete(folder, plan, blocks) is None and missing(folder, blocks) == [blocks[2]]


def test_a_file_that_was_cut_later_is_named(made):
    folder, plan, blocks = made
    finish(folder, plan, blocks)
    os.truncate(folder / blocks[1].file, 100)
    with pytest.raises(UserError, match=rf"{blocks[1].file}: damaged; remove it, and give the command again"):
        complete(folder, plan, blocks)


@NEEDS_GCSFS
def test_a_process_that_was_killed_while_it_finished_a_folder_in_a_bucket_is_followed_by_another(
    encoder, sources, store, monkeypatch
):
    for name, seconds in (("HEARTBEAT", 0.1), ("LOST", 0.3), ("LOOK", 0.05)):
        monkeypatch.setattr(stored, name, seconds)
    folder = as_path("gs://bucket/out")
    plan = begin(folder, encoder, *sources)
    blocks = blocks_of(folder, plan)
    for block in blocks:
        make_block(folder, plan, block, encoder)
    store.put("out/.embeddings.json.lock", this_job().text().encode())
    assert finish(folder, plan, blocks).rows == 25


def test_sources_that_were_written_to_meanwhile_are_named(made, sources):
    folder, plan, blocks = made
    os.utime(sources[1], (1, 1))
    with pytest.raises(UserError, match=r"b\.txt: was changed since"):
        finish(folder, plan, blocks)
    assert read_manifest(folder, plan) is None
