import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.data import raises
from support.embeddings import MODEL, clustered, write_parquet

from simcse_jax.index import embedding_files
from simcse_jax.index.embedding_files import EmbeddingFiles

VECTORS = clustered(50)


def read(files: EmbeddingFiles | Path) -> tuple[np.ndarray, list, np.ndarray]:
    files = EmbeddingFiles(str(files)) if isinstance(files, Path) else files
    rows, sentences, embeddings = zip(*files.batches(), strict=True)
    return np.concatenate(rows), [text for batch in sentences for text in batch.to_pylist()], np.concatenate(embeddings)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parts_of_parquet_and_npy_are_read_by_their_numbers_of_rows_or_the_order_of_names(tmp_path, dtype, monkeypatch):
    monkeypatch.setattr(embedding_files, "AT_ONCE", 16)
    vectors = VECTORS.astype(dtype)
    write_parquet(tmp_path / "a.parquet", vectors[20:], first=20)
    write_parquet(tmp_path / "b.parquet", vectors[:20])
    (tmp_path / "notes.txt").write_text("not read")
    files = EmbeddingFiles(str(tmp_path))
    assert (files.count, files.dimension, files.first, files.last) == (50, 12, 0, 49)
    assert files.maker == MODEL
    rows, sentences, embeddings = read(files)
    assert rows.tolist() == [*range(20, 50), *range(20)]
    assert sentences == [f"sentence {row}" for row in rows]
    np.testing.assert_array_equal(embeddings, vectors[rows])
    for name, part in (("a", slice(0, 20)), ("b", slice(20, 50))):
        write_parquet(tmp_path / f"{name}.parquet", vectors[part], row=None)
    files = EmbeddingFiles(str(tmp_path))  # without numbers of rows they are numbered in order
    rows, _, embeddings = read(files)
    assert (files.first, files.last, rows.tolist()) == (0, 49, list(range(50)))
    np.testing.assert_array_equal(embeddings, vectors)
    (tmp_path / "npy").mkdir()
    for name, part in (("emb-00001-of-00002", vectors[20:]), ("emb-00000-of-00002", vectors[:20])):
        np.save(tmp_path / "npy" / f"{name}.npy", part)
    files = EmbeddingFiles(str(tmp_path / "npy"))
    assert (files.count, files.maker, files.first, files.last) == (50, None, 0, 49)
    rows, sentences, embeddings = read(files)
    assert rows.tolist() == list(range(50)) and set(sentences) == {None}
    np.testing.assert_array_equal(embeddings, vectors)
    assert EmbeddingFiles(str(tmp_path / "npy" / "emb-00000-of-00002.npy")).count == 20


AT = np.arange(VECTORS.size).reshape(VECTORS.shape) == 7 * 12 + 3  # the element [7, 3]
LONG = MODEL._replace(name="a/model-" + 120 * "x")


def second(folder, vectors=VECTORS[:5], first=50, **more) -> None:
    write_parquet(folder / "b.parquet", vectors, first=first, **more)


def changed(folder, vectors=VECTORS, **more) -> None:
    write_parquet(folder / "a.parquet", vectors, **more)


def with_a_prompt(folder) -> None:
    changed(folder, maker=LONG)
    second(folder, maker=LONG._replace(prompt="query: "))


def of_a_damaged_maker(folder) -> None:
    table = pyarrow.parquet.read_table(folder / "a.parquet")
    table = table.replace_schema_metadata({embedding_files.MAKER: json.dumps(["a", "list"])})
    pyarrow.parquet.write_table(table, folder / "a.parquet")


def listing(files: list):
    return lambda folder: (folder / ".embeddings.json").write_text(json.dumps({"files": files}))


NOT_ONCE = "but not each exactly once"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: second(f, clustered(5, 8)), "b.parquet: has embeddings of 8 elements"),
        (lambda f: second(f, maker=MODEL._replace(sha256="1" * 64)), "b.parquet: has embeddings of the model runs/a"),
        (with_a_prompt, "query: , a.parquet embeddings of the model"),
        (lambda f: second(f, sentence=None), "b.parquet: has rows without their sentences, a.parquet rows with"),
        (lambda f: second(f, VECTORS, 0), f"has 100 rows with numbers from 0 to 49, {NOT_ONCE}"),
        (lambda f: second(f, first=51), f"has 55 rows with numbers from 0 to 55, {NOT_ONCE}"),
        # 0 and 3 in place of 1 and 2: the same number, ends and sum; 2, 3 and 7 of 1, 5 and 6: the same squares too.
        (lambda f: changed(f, row=pyarrow.array([0, 0, 3, 3, *range(4, 50)])), f"from 0 to 49, {NOT_ONCE}"),
        (lambda f: changed(f, row=pyarrow.array([0, 2, 2, 3, 4, 3, 7, *range(7, 50)])), f"from 0 to 49, {NOT_ONCE}"),
        (lambda f: changed(f, np.where(AT, 3e38, VECTORS).astype(np.float32)), "a.parquet: row 7 of the file has"),
        (lambda f: changed(f, np.where(AT, np.nan, VECTORS).astype(np.float32)), "a.parquet: row 7 of the file has"),
        (lambda f: changed(f, row=pyarrow.array([None, *range(1, 50)], pyarrow.int64())), "a.parquet: has a row"),
        (lambda f: changed(f, embedding=pyarrow.array(VECTORS.tolist())), "a.parquet: embedding is list<"),
        (lambda f: changed(f, embedding=None), "a.parquet: has no column embedding, but sentence, row"),
        (of_a_damaged_maker, "a.parquet: what it says about its model is damaged"),
        (lambda f: (f / "a.parquet").write_bytes(b"PAR1" * 99), "a.parquet: missing, truncated or damaged"),
        (lambda f: changed(f, VECTORS[:0]), "has no embeddings"),
        (lambda f: np.save(f / "b.npy", VECTORS), "has both .parquet and .npy"),
        (lambda f: (f / "b.parquet.partial").touch(), "b.parquet.partial: is not complete"),
        (lambda f: (f / ".plan.json").touch(), "embeddings.json: is not complete"),
        (listing([["a.parquet", 0], ["b.parquet", 50]]), "b.parquet: missing, but .embeddings.json lists it"),
        (listing([[["a"], 0]]), "embeddings.json: damaged"),
        (lambda f: (f / "a.parquet").rename(f / "a-00000-of-00002.parquet"), "a-00001-of-00002.parquet: missing"),
        (lambda f: (f / "a.parquet").rename(f / ".plan.json"), "has no .parquet and no .npy"),
    ],
)
def test_files_that_cannot_be_an_index_are_refused(tmp_path, spoil, message):
    write_parquet(tmp_path / "a.parquet", VECTORS)
    spoil(tmp_path)
    raises(message, read, tmp_path)


def test_what_is_no_embeddings_or_cut_is_refused(tmp_path):
    arrays = [
        np.zeros((5, 3), np.int8),
        np.zeros(5, np.float32),
        np.zeros((5, 3)),
        np.zeros((5, 0), np.float32),
        np.zeros((5, 3), ">f4"),
    ]
    for array in (*arrays, np.zeros((5, 3), np.float32, order="F")):
        np.save(tmp_path / "a.npy", array)
        raises("; embeddings are (rows, elements), of float32 or float16", EmbeddingFiles, str(tmp_path / "a.npy"))
    (tmp_path / "x.txt").touch()
    for name, message in (("none", "no such file or folder"), ("x.txt", "must be a folder, a .parquet or a .npy")):
        raises(message, EmbeddingFiles, str(tmp_path / name))
    np.save(tmp_path / "a.npy", VECTORS)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-20])
    raises("a.npy: missing, truncated or damaged", read, tmp_path)
