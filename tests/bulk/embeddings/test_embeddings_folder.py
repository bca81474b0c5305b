import os

import pytest
from support.embedding_folders import begin
from support.object_store import NEEDS_GCSFS

from simcse_jax.bulk.embeddings.blocks import make_block
from simcse_jax.bulk.embeddings.embeddings_folder import (
    blocks_of,
    complete,
    count_rows,
    fingerprint,
    finish,
    missing,
    read_manifest,
)
from simcse_jax.data.corpus.shared_folder import claimed, read_sealed, write_sealed
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.errors import UserError
from simcse_jax.host import locks as stored
from simcse_jax.host.locks import this_job
from simcse_jax.host.storage import as_path


def test_blocks_have_the_rows_of_their_files_and_numbers_that_go_on(encoder, sources, tmp_path):
    blocks = blocks_of(tmp_path / "out", begin(tmp_path / "out", encoder, *sources))
    assert [(block.source, block.number, block.first, block.rows, block.row) for block in blocks] == [
        (0, 0, 0, 8, 0),
        (0, 1, 8, 8, 8),
        (0, 2, 16, 4, 16),
        (1, 0, 0, 5, 20),
    ]
    for block in blocks:
        file = SentenceFile(sources[block.source])
        assert list(file.read(place=block.place))[: block.rows] == list(file)[block.first : block.first + block.rows]


def test_rows_are_counted_by_one_process_at_a_time(encoder, sources, tmp_path):
    plan = begin(tmp_path / "out", encoder, *sources)
    with claimed(tmp_path / "out" / "rows-00000.json"):
        assert not count_rows(tmp_path / "out", plan, 0)
    assert count_rows(tmp_path / "out", plan, 0) and not (tmp_path / "out" / ".rows-00001.json").exists()


def test_other_embeddings_folder_is_refused(encoder, sources, tmp_path):
    begin(tmp_path / "out", encoder, *sources)
    for message, change in {"--block-rows was 8, is 9": {"block_rows": 9}, "--keep-text": {"keep_text": False}}.items():
        with pytest.raises(UserError, match=f"is that of other embeddings: {message}"):
            begin(tmp_path / "out", encoder, *sources, **change)
    with pytest.raises(UserError, match=r"source 2 was \S*b\.txt, is missing"):
        begin(tmp_path / "out", encoder, sources[0])


def test_a_folder_of_an_earlier_version_goes_on(encoder, sources, tmp_path):
    plan = begin(tmp_path / "out", encoder, *sources)
    earlier = {name: value for name, value in plan.key.items() if name not in ("--tokens", "--ranges")}
    assert len(earlier) == len(plan.key) - 2 and fingerprint(plan._replace(key=earlier)) == fingerprint(plan)
    assert fingerprint(plan._replace(key=plan.key | {"--tokens": True})) != fingerprint(plan)


def test_a_table_that_earlier_versions_read_in_another_way_is_another_source(encoder, tmp_path):
    for name, content, read in (("a", 'say "no"', None), ("b", '"say ""no"""', "tabs, quoted")):
        path = tmp_path / f"{name}.tsv"
        path.write_text(f"text\n{content}\n")
        assert begin(tmp_path / name, encoder, path).key.get("read as") == (read and {str(path): read})


def test_files_without_rows_are_refused(encoder, tmp_path):
    (tmp_path / "a.csv").write_text("text\n")
    with pytest.raises(UserError, match=r"a\.csv: holds no sentences"):
        blocks_of(tmp_path / "out", begin(tmp_path / "out", encoder, tmp_path / "a.csv"))
    with pytest.raises(UserError, match="hf:x: no such file; give a file of sentences"):
        begin(tmp_path / "out", encoder, "hf:x")


def test_numbers_of_rows_of_another_command_are_refused(encoder, sources, tmp_path):
    plan = begin(tmp_path / "out", encoder, *sources)
    blocks_of(tmp_path / "out", plan)
    counted = read_sealed(tmp_path / "out" / ".rows-00001.json")
    write_sealed(tmp_path / "out" / ".rows-00001.json", counted | {"plan": "0" * 64})
    with pytest.raises(UserError, match=r"/\.rows-00001\.json: belongs to another command; remove it"):
        blocks_of(tmp_path / "out", plan)


def test_a_source_that_was_changed_is_not_counted(encoder, sources, tmp_path):
    plan = begin(tmp_path / "out", encoder, *sources)
    os.utime(sources[0], (1, 1))
    with pytest.raises(UserError, match=r"a\.txt: was changed since"):
        count_rows(tmp_path / "out", plan, 0)
    assert not (tmp_path / "out" / ".rows-00000.json").exists()


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
    with pytest.raises(UserError, match=rf"{blocks[1].file}: damaged; remove it, and run the command again"):
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
