import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet
import pytest
from support.data import raises
from support.embedding_folders import begin, encoder_of, rows_in
from support.object_store import NEEDS_GCSFS
from support.readers import READERS, rows_read

from simcse_jax import SimCSE
from simcse_jax.bulk.embeddings import blocks as module
from simcse_jax.bulk.embeddings import encoder as encoder_module
from simcse_jax.bulk.embeddings.blocks import encode_here, make_block, quantization_of
from simcse_jax.bulk.embeddings.embeddings_folder import Facts, blocks_of, is_made, read_facts
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.host.storage import as_path
from simcse_jax.simcse import TokenEmbeddings
from simcse_jax.vectors.quantization import quantize, ranges_of, read_ranges


@pytest.fixture
def blocks(folder, plan):
    return blocks_of(folder, plan)


@pytest.fixture
def texts(sources):
    return [text for source in sources for text in SentenceFile(source)]


@pytest.mark.parametrize("keep_text", [False, True])
def test_a_block_s_file_has_its_rows_and_is_synced(keep_text, encoder, sources, texts, tiny_bert, folder, monkeypatch):
    monkeypatch.setattr(module, "SENTENCES", 3)
    done, synced, original = [], [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino) or original(file))
    plan = begin(folder, encoder, *sources, keep_text=keep_text)
    block = blocks_of(folder, plan)[1]
    make_block(folder, plan, block, encoder, advance=done.append)
    table = pyarrow.parquet.read_table(folder / block.file)
    assert table.column_names == [*["sentence"] * keep_text, "row", "embedding"]
    assert table["row"].to_pylist() == list(range(8, 16)) and sum(done) == 8
    assert not keep_text or table["sentence"].to_pylist() == texts[8:16]
    np.testing.assert_allclose(table["embedding"].to_pylist(), SimCSE(str(tiny_bert)).encode(texts[8:16]), atol=1e-6)
    assert read_facts(folder, block) == Facts(8, 8, 32, 0)
    assert (folder / block.file).stat().st_ino in synced


def test_cut_sentences_are_counted_and_numbers_too_large_refused(tiny_bert, sources, folder):
    short = encoder_of(tiny_bert, max_length=3, output_dtype="float16")
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

    raises(f"{block.file}: an embedding has an element beyond float16", make_block, folder, plan, block, Large())
    assert not [path for path in folder.iterdir() if path.name.startswith((".embeddings-", "embeddings-"))]
    tokens = [TokenEmbeddings(["a"], np.full((1, 4), 1e6, np.float32))]
    schema = module.schema_of_tokens(4, np.dtype("float16"), True)
    raises("beyond halffloat; write float32", module.tokens_table, schema, ["a"], 0, tokens)


def test_changed_sources_and_damaged_files_are_named(folder, plan, blocks, encoder, sources):
    def change(rows):
        os.utime(sources[1], (1, 1))

    raises("b.txt: was changed since", make_block, folder, plan, blocks[3], encoder, advance=change)
    assert not is_made(folder, blocks[3])
    sources[0].write_bytes(sources[0].read_bytes()[1:] + b"\n")  # the rows are as many
    raises("a.txt: was changed since", make_block, folder, plan, blocks[0], encoder)
    (folder / blocks[3].file).write_bytes(b"PAR1")
    raises("embeddings-00001-00000.parquet: damaged", read_facts, folder, blocks[3])


def test_blocks_that_are_there_are_not_made_again_and_another_s_stays(folder, plan, blocks, encoder, monkeypatch):
    first, second, *_ = blocks
    make_block(folder, plan, first, encoder)
    written = (folder / first.file).stat()
    make_block(folder, plan, first, encoder)  # as two processes that begin it at once do
    assert (folder / first.file).stat() == written
    made = []
    monkeypatch.setattr(module, "make_block", lambda *job: made.append(job[2]) or make_block(*job))
    assert encode_here(folder, plan, encoder).rows == len(rows_in(folder)) == 25
    assert sorted(block.row for block in made) == [block.row for block in blocks[1:]]
    (folder / first.file).rename(folder / second.file)
    raises("00001.parquet: damaged", read_facts, folder, second)


def test_several_that_encode_at_once_make_each_row_once(folder, plan, encoder, texts):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: encode_here(folder, plan, encoder), range(4)))
    assert found == [found[0]] * 4
    assert [(row["row"], row["sentence"]) for row in rows_in(folder)] == list(enumerate(texts))
    assert not list(folder.glob(".*.tmp"))


def test_all_blocks_have_the_ranges_of_the_first_rows(sources, texts, tiny_bert, folder, monkeypatch):
    monkeypatch.setattr(encoder_module, "CALIBRATED", 22)  # rows of both sources
    encoder = encoder_of(tiny_bert, output_dtype="int8")
    plan = begin(folder, encoder, *sources)
    blocks = blocks_of(folder, plan)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda block: make_block(folder, plan, block, encoder), blocks))
    expected, ranges = SimCSE(str(tiny_bert)).encode(texts), read_ranges(str(folder), 32)
    np.testing.assert_allclose(ranges, ranges_of(expected[:22]), atol=1e-5)
    for block in blocks:
        np.testing.assert_array_equal(read_ranges(str(folder / block.file)), ranges)
        found = np.array(pyarrow.parquet.read_table(folder / block.file)["embedding"].to_pylist())
        codes = quantize(expected[block.row : block.row + block.rows], "int8", ranges)
        assert np.abs(found - codes).max() <= 1


def test_given_ranges_are_part_of_the_plan_and_bits_have_none(sources, tiny_bert, folder):
    given = np.stack([np.full(32, -2, np.float32), np.full(32, 2, np.float32)])
    encoder = encoder_of(tiny_bert, output_dtype="uint8", ranges=given)
    plan = begin(folder, encoder, *sources)
    np.testing.assert_array_equal(quantization_of(folder, plan, encoder).ranges, given)
    raises("--ranges was", begin, folder, encoder_of(tiny_bert, output_dtype="uint8", ranges=given * 2), *sources)
    raises("--ranges: of shape (2, 31)", encoder_of, tiny_bert, output_dtype="uint8", ranges=given[:, 1:])
    encoder, bits = encoder_of(tiny_bert, output_dtype="binary"), folder.with_name("bits")
    plan = begin(bits, encoder, *sources)
    found = quantization_of(bits, plan, encoder)
    assert (found.precision, found.dimension, found.ranges) == ("binary", 32, None)


@pytest.mark.parametrize(("dtype", "keep_text"), [("float32", True), ("float16", False)])
def test_a_folder_has_the_tokens_of_each_row(dtype, keep_text, sources, texts, tiny_bert, folder, monkeypatch):
    monkeypatch.setattr(module, "TOKEN_ROWS", 3)
    encoder = encoder_of(tiny_bert, tokens=True, output_dtype=dtype)
    plan = begin(folder, encoder, *sources, keep_text=keep_text)
    done = []
    for block in blocks_of(folder, plan):
        make_block(folder, plan, block, encoder, advance=done.append)
    expected = SimCSE(str(tiny_bert)).encode_tokens(texts, with_tokens=True)
    rows = rows_in(folder)
    assert [row["row"] for row in rows] == list(range(25)) and sum(done) == 25
    assert not keep_text or [row["sentence"] for row in rows] == texts
    for row, (tokens, embeddings) in zip(rows, expected, strict=True):
        assert row["tokens"] == tokens
        np.testing.assert_allclose(row["token_embeddings"], embeddings, atol=1e-5 if dtype == "float32" else 2e-3)
    other = encoder_of(tiny_bert, output_dtype=dtype)
    raises("--tokens was True", begin, folder, other, *sources, keep_text=keep_text)


def test_every_row_is_made_once_and_others_read_all_also_while_it_is_filled(folder, plan, blocks, encoder, texts):
    first, second, *_, last = blocks
    make_block(folder, plan, first, encoder)
    (folder / f".{last.file}.00ff.tmp").write_text("the first bytes")
    for reader in READERS:
        assert [row["row"] for row in rows_read(reader, folder)] == list(range(8)), reader
    assert encode_here(folder, plan, encoder).rows == 25
    expected = encoder.encode(texts).embeddings
    for reader in READERS:
        rows = rows_read(reader, folder)
        assert [(row["row"], row["sentence"]) for row in rows] == list(enumerate(texts)), reader
        np.testing.assert_allclose([row["embedding"] for row in rows], expected, rtol=1e-5, atol=1e-6)
    lost = folder / second.file
    content = lost.read_bytes()
    lost.unlink()
    assert encode_here(folder, plan, encoder).rows == 25 and lost.read_bytes() == content
    assert not list(folder.glob(".*.tmp"))


@NEEDS_GCSFS
def test_in_a_bucket_blocks_that_others_made_meanwhile_are_left_out(encoder, sources, store, monkeypatch):
    for source in sources:
        store.put(f"text/{source.name}", source.read_bytes())
    folder = as_path("gs://bucket/out")
    plan = begin(folder, encoder, *(f"gs://bucket/text/{source.name}" for source in sources))
    made = []

    def make_with_another(*job):
        made.append(job[2])
        for block in blocks_of(folder, plan):
            make_block(folder, plan, block, encoder)

    monkeypatch.setattr(module, "make_block", make_with_another)
    assert encode_here(folder, plan, encoder).rows == 25 and len(made) == 1
    names = [block.file for block in blocks_of(folder, plan)]
    assert store.names("out/") == sorted(
        [f"out/{name}" for name in names]
        + ["out/.embeddings.json", "out/.plan.json", "out/.rows-00000.json", "out/.rows-00001.json"]
    )
