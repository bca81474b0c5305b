"""Every kind of corpus gives the same nearest rows."""

import numpy as np
import pytest
from support import call, sentences
from support.corpora import prepare

from simcse_jax import SimCSE
from simcse_jax.bulk.mining.corpus import open_corpus
from simcse_jax.bulk.mining.miner import check_rows
from simcse_jax.bulk.mining.pairs import Pair, Positives
from simcse_jax.errors import UserError

TEXTS = list(dict.fromkeys(sentences(60)))[:30]


@pytest.fixture(scope="module")
def made(tiny_bert, tmp_path_factory):
    """The same sentences as a file, prepared, as an index, and as embeddings of two kinds."""
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    (folder / "pairs.csv").write_text("\n".join(["sent0,sent1", *(f"a cat,{text}" for text in TEXTS)]) + "\n")
    prepare(folder / "prepared", tiny_bert, folder / "texts.txt", keep_text=True)
    prepare(folder / "pairs", tiny_bert, folder / "pairs.csv", keep_text=True)
    prepare(folder / "textless", tiny_bert, folder / "texts.txt")
    model = SimCSE(str(tiny_bert))
    model.build_index(TEXTS)
    model.save_index(folder / "index")
    (folder / "npy").mkdir()
    np.save(folder / "npy" / "all.npy", model.encode(TEXTS))
    for options in (["--output", folder / "embeddings/", "--keep-text"], ["--output", folder / "one.parquet"]):
        (folder / "embeddings").mkdir(exist_ok=True)
        done = call("encode", "--model", tiny_bert, "--data", folder / "texts.txt", *options)
        assert done.returncode == 0, done.stderr
    return folder


def nearest(made, tiny_bert, name, column=None, **options):
    model = SimCSE(str(tiny_bert))
    corpus = open_corpus(str(made / name), model, column, options)
    found = corpus.search(model.encode_query(["the red cat", "a bird sings"]), 7)
    rows = [[result.row for result in each] for each in found]
    return rows, [[result.sentence for result in each] for each in found], corpus


def test_each_kind_gives_the_same_rows(made, tiny_bert, monkeypatch):
    monkeypatch.setattr("simcse_jax.bulk.mining.corpus.AT_ONCE", 7)
    rows, texts, corpus = nearest(made, tiny_bert, "texts.txt")
    assert texts == [[TEXTS[row] for row in each] for each in rows] and (corpus.rows, corpus.has_text) == (30, True)
    marks = {corpus.fingerprint}
    for name, column in (("prepared", None), ("pairs", "positive"), ("index", None), ("embeddings", None)):
        same_rows, same_texts, found = nearest(made, tiny_bert, name, column)
        assert (same_rows, same_texts, found.rows) == (rows, texts, 30), name
        marks.add(found.fingerprint)
    assert nearest(made, tiny_bert, "one.parquet")[0] == rows
    found = nearest(made, tiny_bert, "npy")
    assert (found[0], found[2].has_text) == (rows, False)
    assert len(marks) == 5
    assert nearest(made, tiny_bert, "pairs", "anchor")[2].fingerprint not in marks


def test_lancedb_and_faiss_find_them_too(made, tiny_bert):
    rows, texts, _ = nearest(made, tiny_bert, "texts.txt")
    pytest.importorskip("faiss")
    assert nearest(made, tiny_bert, "index", backend="faiss")[0] == rows
    pytest.importorskip("lancedb")
    done = call("search", "build", "--embeddings", made / "embeddings", "--output", made / "lance")
    assert done.returncode == 0, done.stderr
    assert nearest(made, tiny_bert, "lance", refine=20)[:2] == (rows, texts)
    done = call(
        "search", "build", "--embeddings", made / "embeddings", "--output", made / "bytes", "--precision", "int8"
    )
    assert done.returncode == 0, done.stderr
    _, _, corpus = nearest(made, tiny_bert, "bytes")
    assert corpus.quantization is not None and corpus.quantization.precision == "int8"  # positives are scored so, too
    check_rows(corpus, Positives(iter([Pair(0, "a", "b", (0, 29))])), "bytes")
    with pytest.raises(UserError, match=r"names row 30 of the corpus, but no row of bytes \(30\) has it"):
        check_rows(corpus, Positives(iter([Pair(0, "a", "b", (29, 30))])), "bytes")
    with pytest.raises(UserError, match="refine=2: is for an index of LanceDB"):
        nearest(made, tiny_bert, "index", refine=2)


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("none.txt", None, "no such file"),
        ("textless", None, "prepared without its text"),
        ("pairs", None, "name the one to search in with --corpus-column"),
        ("prepared", "positive", "--corpus-column positive: .* with the columns anchor$"),
        ("index", "text", "has no columns of sentences"),
    ],
)
def test_what_is_no_corpus_is_named(made, tiny_bert, name, column, message):
    with pytest.raises(UserError, match=message):
        nearest(made, tiny_bert, name, column)


def test_a_parquet_that_names_no_model_is_refused(made, tiny_bert, tmp_path):
    done = call(
        *("encode", "--model", tiny_bert, "--data", made / "texts.txt", "--max-length", 4),
        *("--output", tmp_path / "cut.parquet"),
    )
    assert done.returncode == 0, done.stderr
    with pytest.raises(UserError, match=r"cut\.parquet: does not say which model made its embeddings"):
        open_corpus(str(tmp_path / "cut.parquet"), SimCSE(str(tiny_bert)), None, {})


def test_embeddings_of_another_model_are_refused(made, prompted):
    for name, message in (("embeddings", "an index of"), ("npy", "embeddings of")):
        with pytest.raises(UserError, match=message):
            open_corpus(str(made / name), SimCSE(str(prompted)), None, {})
