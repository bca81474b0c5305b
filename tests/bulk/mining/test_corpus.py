"""Every kind of corpus gives the same nearest rows."""

import numpy as np
import pytest
from support import call, sentences
from support.corpora import prepare
from support.data import raises

from simcse_jax import SimCSE
from simcse_jax.bulk.mining.corpus import open_corpus
from simcse_jax.bulk.mining.miner import check_rows
from simcse_jax.bulk.mining.pairs import Pair, Positives

TEXTS = sentences(30)


def run(*arguments):
    done = call(*arguments)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def model(tiny_bert):
    return SimCSE(str(tiny_bert))


@pytest.fixture(scope="module")
def made(tiny_bert, tmp_path_factory):
    """The same sentences as a file, prepared, as an index, and as embeddings of two kinds."""
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    (folder / "pairs.csv").write_text("\n".join(["sent0,sent1", *(f"a cat,{text}" for text in TEXTS)]) + "\n")
    prepare(folder / "prepared", tiny_bert, folder / "texts.txt", keep_text=True)
    prepare(folder / "pairs", tiny_bert, folder / "pairs.csv", keep_text=True)
    prepare(folder / "textless", tiny_bert, folder / "texts.txt")
    own = SimCSE(str(tiny_bert))
    own.build_index(TEXTS)
    own.save_index(folder / "index")
    (folder / "npy").mkdir()
    np.save(folder / "npy" / "all.npy", own.encode(TEXTS))
    encode = ("encode", "--model", tiny_bert, "--data", folder / "texts.txt")
    run(*encode, "--output", f"{folder / 'embeddings'}/", "--keep-text")
    run(*encode, "--output", folder / "one.parquet")
    run(*encode, "--output", folder / "cut.parquet", "--max-length", 4)
    return folder


@pytest.fixture
def nearest(made, model):
    """The rows and texts nearest to two queries, and the corpus."""

    def search(name, column=None, **options):
        corpus = open_corpus(str(made / name), model, column, options)
        found = corpus.search(model.encode_query(["the red cat", "a bird sings"]), 7)
        rows = [[result.row for result in each] for each in found]
        return rows, [[result.sentence for result in each] for each in found], corpus

    return search


def test_lancedb_and_faiss_find_them_too(made, nearest):
    rows, texts, _ = nearest("texts.txt")
    pytest.importorskip("faiss")
    assert nearest("index", backend="faiss")[0] == rows
    pytest.importorskip("lancedb")
    build = ("search", "build", "--embeddings", made / "embeddings", "--output")
    run(*build, made / "lance")
    assert nearest("lance", refine=20)[:2] == (rows, texts)
    run(*build, made / "bytes", "--precision", "int8")
    _, _, corpus = nearest("bytes")
    assert corpus.quantization is not None and corpus.quantization.precision == "int8"  # positives are scored so, too
    check_rows(corpus, Positives(iter([Pair(0, "a", "b", (0, 29))])), "bytes")
    raises("row 30 of the corpus", check_rows, corpus, Positives(iter([Pair(0, "a", "b", (29, 30))])), "bytes")
    assert nearest("index", refine=2)[0] == rows  # which is for LanceDB's


def test_each_kind_gives_the_same_rows_and_what_is_no_corpus_is_named(nearest, monkeypatch, made, prompted):
    monkeypatch.setattr("simcse_jax.bulk.mining.corpus.AT_ONCE", 7)
    rows, texts, corpus = nearest("texts.txt")
    assert texts == [[TEXTS[row] for row in each] for each in rows] and (corpus.rows, corpus.has_text) == (30, True)
    marks = {corpus.fingerprint}
    for name, column in (("prepared", None), ("pairs", "positive"), ("index", None), ("embeddings", None)):
        same_rows, same_texts, found = nearest(name, column)
        assert (same_rows, same_texts, found.rows) == (rows, texts, 30), name
        marks.add(found.fingerprint)
    assert nearest("one.parquet")[0] == rows
    found = nearest("npy")
    assert (found[0], found[2].has_text) == (rows, False)
    assert len(marks) == 5 and nearest("pairs", "anchor")[2].fingerprint not in marks
    for name, column, message in (
        ("none.txt", None, "none.txt: no such file"),
        ("textless", None, "textless: was prepared without its text"),
        ("pairs", None, "name the one to search in with --corpus-column"),
        ("prepared", "positive", "--corpus-column positive: "),
        ("index", "text", "has no columns of sentences"),
        ("cut.parquet", None, "cut.parquet: does not say which model made its embeddings"),
    ):
        raises(message, nearest, name, column)
    for name, message in (("embeddings", "an index of"), ("npy", "embeddings of")):
        raises(message, open_corpus, str(made / name), SimCSE(str(prompted)), None, {})
