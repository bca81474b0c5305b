import os

import pytest
from support.data import raises
from support.embedding_folders import begin

from simcse_jax.bulk.embeddings import embeddings_folder
from simcse_jax.bulk.embeddings.blocks import make_block
from simcse_jax.bulk.embeddings.embeddings_folder import blocks_of, count_rows, finish, read_manifest
from simcse_jax.data.sentences import SentenceFile


def test_rows_are_counted_once_and_not_of_a_source_that_was_changed(folder, plan, sources, monkeypatch):
    assert count_rows(folder, plan, 0)["rows"] == 20 and not (folder / ".rows-00001.json").exists()
    os.utime(sources[1], (1, 1))
    raises("b.txt: was changed since", count_rows, folder, plan, 1)
    monkeypatch.setattr(embeddings_folder, "SentenceFile", None)
    assert count_rows(folder, plan, 0)["rows"] == 20
    assert not (folder / ".rows-00001.json").exists()


def test_blocks_go_on_after_one_another_and_another_folder_is_refused(folder, plan, sources, encoder, tmp_path):
    blocks = blocks_of(folder, plan)
    found = [(block.source, block.number, block.first, block.rows, block.row) for block in blocks]
    assert found == [(0, 0, 0, 8, 0), (0, 1, 8, 8, 8), (0, 2, 16, 4, 16), (1, 0, 0, 5, 20)]
    for block in blocks:
        file = SentenceFile(sources[block.source])
        assert list(file.read(place=block.place))[: block.rows] == list(file)[block.first : block.first + block.rows]
    raises("is that of other embeddings: --block-rows was 8, is 9", begin, folder, encoder, *sources, block_rows=9)
    raises("--keep-text", begin, folder, encoder, *sources, keep_text=False)
    raises("b.txt, is missing", begin, folder, encoder, sources[0])
    (tmp_path / "a.csv").write_text("text\n")
    empty = begin(tmp_path / "empty", encoder, tmp_path / "a.csv")
    raises("a.csv: holds no sentences", blocks_of, tmp_path / "empty", empty)


@pytest.fixture
def blocks(folder, plan, encoder):
    blocks = blocks_of(folder, plan)
    for block in blocks:
        make_block(folder, plan, block, encoder)
    return blocks


def test_it_lists_all_blocks_and_what_is_missing_or_was_cut_is_found(folder, plan, blocks, sources):
    (folder / ".embeddings-00000-00000.parquet.0.tmp").touch()  # of a killed process
    assert read_manifest(folder, plan) is None and not embeddings_folder.missing(folder, blocks)
    written = sources[1].stat().st_mtime_ns
    os.utime(sources[1], (1, 1))
    raises("b.txt: was changed since", finish, folder, plan, blocks)
    assert read_manifest(folder, plan) is None
    os.utime(sources[1], ns=(written, written))
    found = finish(folder, plan, blocks)
    assert (found.rows, found.dimension, found.cut) == (25, 32, 0)
    assert found.files == [[block.file, block.row] for block in blocks]
    assert finish(folder, plan, blocks) == read_manifest(folder, plan) == found
    own = {".plan.json", ".rows-00000.json", ".rows-00001.json", ".embeddings.json"}
    assert {path.name for path in folder.iterdir()} == own | {block.file for block in blocks}
    (folder / blocks[2].file).rename(folder / "elsewhere")
    assert embeddings_folder.missing(folder, blocks) == [blocks[2]]
    (folder / "elsewhere").rename(folder / blocks[2].file)
    os.truncate(folder / blocks[1].file, 100)
    raises(f"{blocks[1].file}: damaged", finish, folder, plan, blocks)
