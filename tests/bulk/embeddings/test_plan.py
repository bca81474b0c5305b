import os

import pytest
from support.embedding_folders import begin

from simcse_jax.bulk.embeddings.plan import blocks_of, count_rows, fingerprint
from simcse_jax.data.corpus.shared_folder import claimed, read_sealed, write_sealed
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.errors import UserError


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
    with pytest.raises(UserError, match=r"/\.rows-00001\.json: is another command's; remove it"):
        blocks_of(tmp_path / "out", plan)


def test_a_source_that_was_changed_is_not_counted(encoder, sources, tmp_path):
    plan = begin(tmp_path / "out", encoder, *sources)
    os.utime(sources[0], (1, 1))
    with pytest.raises(UserError, match=r"a\.txt: was changed since"):
        count_rows(tmp_path / "out", plan, 0)
    assert not (tmp_path / "out" / ".rows-00000.json").exists()
