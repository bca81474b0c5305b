import os

import numpy as np
import pyarrow.parquet
import pytest
from support.embedding_folders import begin, encoder_of

from simcse_jax import SimCSE
from simcse_jax.bulk.embeddings import blocks as module
from simcse_jax.bulk.embeddings.blocks import Facts, is_made, make_block, read_facts
from simcse_jax.bulk.embeddings.plan import blocks_of, fingerprint
from simcse_jax.data.corpus.shared_folder import claimed
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.errors import UserError


@pytest.mark.parametrize("keep_text", [False, True])
def test_a_block_s_file_has_its_rows(keep_text, encoder, sources, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 3)
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources, keep_text=keep_text)
    done = []
    block = blocks_of(folder, plan)[1]
    assert make_block(folder, plan, block, encoder, advance=done.append)
    table = pyarrow.parquet.read_table(folder / block.file)
    texts = list(SentenceFile(sources[0]))[8:16]
    assert table.column_names == [*["sentence"] * keep_text, "row", "embedding"]
    assert table["row"].to_pylist() == list(range(8, 16)) and sum(done) == 8
    assert not keep_text or table["sentence"].to_pylist() == texts
    np.testing.assert_allclose(table["embedding"].to_pylist(), SimCSE(str(tiny_bert)).encode(texts), atol=1e-6)
    assert read_facts(folder, block) == Facts(fingerprint(plan), 8, 8, 32, 0)


def test_a_file_that_is_there_is_not_made_again_nor_one_that_another_process_makes(encoder, sources, tmp_path):
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources)
    first, second, *_ = blocks_of(folder, plan)
    make_block(folder, plan, first, encoder)
    written = (folder / first.file).stat()
    assert make_block(folder, plan, first, encoder) and (folder / first.file).stat() == written
    with claimed(folder / second.file):
        assert not make_block(folder, plan, second, encoder)
    assert not is_made(folder, second)


def test_cut_sentences_are_counted_and_numbers_too_large_refused(tiny_bert, sources, tmp_path):
    short = encoder_of(tiny_bert, max_length=3, output_dtype="float16")
    folder = tmp_path / "out"
    plan = begin(folder, short, *sources)
    block = blocks_of(folder, plan)[0]
    make_block(folder, plan, block, short)
    assert read_facts(folder, block).cut == 8
    (folder / block.file).unlink()

    class Large:
        dimension, maker, of_tokens = short.dimension, short.maker, False

        def encode(self, sentences, advance):
            found = short.encode(sentences, advance)
            return found._replace(embeddings=found.embeddings * 1e6)

    with pytest.raises(UserError, match="an element beyond float16; write float32"):
        make_block(folder, plan, block, Large())
    assert not [path for path in folder.iterdir() if path.name.startswith((".embeddings-", "embeddings-"))]


def test_a_source_that_changed_and_a_damaged_file_are_named(encoder, sources, tmp_path):
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources)
    blocks = blocks_of(folder, plan)
    sources[0].write_bytes(sources[0].read_bytes()[1:] + b"\n")  # the rows are as many
    with pytest.raises(UserError, match=r"a\.txt: was changed since"):
        make_block(folder, plan, blocks[0], encoder)
    (folder / blocks[3].file).write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"embeddings-00001-00000\.parquet: damaged"):
        read_facts(folder, blocks[3])


def test_a_source_that_changes_while_a_block_is_made_is_named(encoder, sources, tmp_path):
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources)
    block = blocks_of(folder, plan)[0]
    with pytest.raises(UserError, match=r"a\.txt: was changed since"):
        make_block(folder, plan, block, encoder, advance=lambda rows: os.utime(sources[0], (1, 1)))
    assert not is_made(folder, block)


def test_files_of_other_blocks_and_of_other_plans_are_refused(encoder, sources, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    plan = begin(one, encoder, *sources)
    first, second, *_ = blocks_of(one, plan)
    make_block(one, plan, first, encoder)
    (one / first.file).rename(one / second.file)
    with pytest.raises(UserError, match=r"00001\.parquet: damaged; remove it"):
        read_facts(one, second)
    plan = begin(other, encoder, *sources, keep_text=False)
    block = blocks_of(other, plan)[0]
    (one / second.file).rename(other / block.file)  # as a process that was forgotten may write it
    with pytest.raises(UserError, match=r"00000\.parquet: is another command's; remove it"):
        read_facts(other, block)


def test_a_file_is_on_the_disk_before_it_has_its_name(encoder, sources, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources)
    block = blocks_of(folder, plan)[0]
    synced, original = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino) or original(file))
    make_block(folder, plan, block, encoder)
    assert (folder / block.file).stat().st_ino in synced
