import numpy as np
import pytest
from support.embedding_folders import begin, encoder_of, rows_in

from simcse_jax import SimCSE
from simcse_jax.bulk.embeddings import token_rows
from simcse_jax.bulk.embeddings.blocks import make_block
from simcse_jax.bulk.embeddings.plan import blocks_of
from simcse_jax.bulk.embeddings.token_rows import schema_of_tokens, tokens_table
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.errors import UserError
from simcse_jax.simcse import EncodedTokens, TokenEmbeddings


@pytest.mark.parametrize(("dtype", "keep_text"), [("float32", True), ("float16", False)])
def test_a_folder_has_the_tokens_of_each_row(dtype, keep_text, sources, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(token_rows, "ROWS", 3)
    folder, encoder = tmp_path / "out", encoder_of(tiny_bert, tokens=True, output_dtype=dtype)
    plan = begin(folder, encoder, *sources, keep_text=keep_text)
    done = []
    for block in blocks_of(folder, plan):
        assert make_block(folder, plan, block, encoder, advance=done.append)
    texts = [text for source in sources for text in SentenceFile(source)]
    expected = SimCSE(str(tiny_bert)).encode_tokens(texts, with_tokens=True)
    rows = rows_in(folder)
    assert [row["row"] for row in rows] == list(range(25)) and sum(done) == 25
    assert not keep_text or [row["sentence"] for row in rows] == texts
    for row, (tokens, embeddings) in zip(rows, expected, strict=True):
        assert row["tokens"] == tokens
        np.testing.assert_allclose(row["token_embeddings"], embeddings, atol=1e-5 if dtype == "float32" else 2e-3)
    with pytest.raises(UserError, match="--tokens was True"):
        begin(folder, encoder_of(tiny_bert, output_dtype=dtype), *sources, keep_text=keep_text)


def test_fewer_long_sentences_are_in_memory_together(monkeypatch):
    counts = []

    class Fake:
        max_length = 64

        def encode_tokens(self, part, advance):
            counts.append(len(part))
            return EncodedTokens([TokenEmbeddings(["a"], np.ones((1, 4), np.float32))] * len(part), 0)

    class Writer:
        schema = schema_of_tokens(4, np.dtype("float32"), False)

        def write_table(self, table):
            assert len(table) == counts[-1]

    for most, expected in ((64 * 3, [3, 3, 1]), (63, [1] * 7), (1 << 20, [7])):
        monkeypatch.setattr(token_rows, "TOKENS", most)
        counts.clear()
        assert token_rows.write_tokens(Writer(), Fake(), iter("abcdefg"), 0, None) == (7, 0)
        assert counts == expected


def test_rows_are_of_the_schema_and_numbers_must_fit():
    schema = schema_of_tokens(4, np.dtype("float16"), True)
    ones, zeros = np.ones((2, 4), np.float32), np.zeros((1, 4), np.float32)
    found = [TokenEmbeddings(["a", "b"], ones), TokenEmbeddings(["c"], zeros)]
    table = tokens_table(schema, ["a b", "c"], 7, found)
    assert table.schema == schema and table["row"].to_pylist() == [7, 8]
    assert table["token_embeddings"].to_pylist() == [[[1.0] * 4] * 2, [[0.0] * 4]]
    ones[1, 2] = 1e6
    with pytest.raises(UserError, match="beyond halffloat; write float32"):
        tokens_table(schema, ["a b", "c"], 7, found)
