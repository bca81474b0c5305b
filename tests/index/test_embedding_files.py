import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.embeddings import MODEL, clustered, write_parquet

from simcse_jax.encoding.parquet import rows_table, schema_of
from simcse_jax.errors import UserError
from simcse_jax.index import embedding_files
from simcse_jax.index.embedding_files import EmbeddingFiles

VECTORS = clustered(50)


def read(files: EmbeddingFiles) -> tuple[np.ndarray, list, np.ndarray]:
    batches = list(files.batches())
    sentences = [text for batch in batches for text in batch.sentences.to_pylist()]
    return (
        np.concatenate([batch.rows for batch in batches]),
        sentences,
        np.concatenate([batch.embeddings for batch in batches]),
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parquet_in_parts_whose_rows_are_in_any_order(tmp_path, dtype, monkeypatch):
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


def test_parquet_without_numbers_of_rows_is_numbered_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_files, "AT_ONCE", 16)
    for name, part in (("a", slice(0, 20)), ("b", slice(20, 50))):
        write_parquet(tmp_path / f"{name}.parquet", VECTORS[part], row=None)
    files = EmbeddingFiles(str(tmp_path))
    rows, _, embeddings = read(files)
    assert (files.first, files.last, rows.tolist()) == (0, 49, list(range(50)))
    np.testing.assert_array_equal(embeddings, VECTORS)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_npy_in_parts_is_numbered_in_the_order_of_names(tmp_path, dtype, monkeypatch):
    monkeypatch.setattr(embedding_files, "AT_ONCE", 16)
    vectors = VECTORS.astype(dtype)
    np.save(tmp_path / "emb-00001-of-00002.npy", vectors[20:])
    np.save(tmp_path / "emb-00000-of-00002.npy", vectors[:20])
    files = EmbeddingFiles(str(tmp_path))
    assert (files.count, files.maker, files.first, files.last) == (50, None, 0, 49)
    rows, sentences, embeddings = read(files)
    assert rows.tolist() == list(range(50)) and set(sentences) == {None}
    np.testing.assert_array_equal(embeddings, vectors)
    assert EmbeddingFiles(str(tmp_path / "emb-00000-of-00002.npy")).count == 20


LONG = MODEL._replace(name="a/model-" + 120 * "x")


def broken(folder, name: str) -> None:
    """Embeddings with a mistake."""
    whole = VECTORS.copy()
    if name == "sizes":
        write_parquet(folder / "b.parquet", clustered(5, 8), first=50)
    elif name == "models":
        write_parquet(folder / "b.parquet", VECTORS[:5], first=50, maker=MODEL._replace(sha256="1" * 64))
    elif name == "twice":
        write_parquet(folder / "b.parquet", VECTORS)
    elif name == "gap":
        write_parquet(folder / "b.parquet", VECTORS[:5], first=51)
    elif name == "same sum":  # 0 and 3 in place of 1 and 2: the same number, ends and sum
        rows = np.arange(50)
        rows[[10, 11, 12, 13]] = [10, 10, 13, 13]
        write_parquet(folder / "a.parquet", VECTORS, row=pyarrow.array(rows))
    elif name == "same squares":  # 2, 3 and 7 in place of 1, 5 and 6: the same squares too
        rows = np.arange(50)
        rows[[1, 5, 6]] = [2, 3, 7]
        write_parquet(folder / "a.parquet", VECTORS, row=pyarrow.array(rows))
    elif name == "prompts":
        write_parquet(folder / "a.parquet", VECTORS, maker=LONG)
        write_parquet(folder / "b.parquet", VECTORS[:5], first=50, maker=LONG._replace(prompt="query: "))
    elif name == "too long":
        whole[7, 3] = 3e38
        write_parquet(folder / "a.parquet", whole)
    elif name == "kinds":
        np.save(folder / "b.npy", VECTORS)
    elif name == "unfinished":
        (folder / "b.parquet.partial").touch()
    elif name == "nan":
        whole[7, 3] = np.nan
        write_parquet(folder / "a.parquet", whole)
    elif name == "no row":
        write_parquet(folder / "a.parquet", VECTORS, row=pyarrow.array([None, *range(1, 50)], pyarrow.int64()))
    elif name == "negative":
        write_parquet(folder / "a.parquet", VECTORS, first=-1)
    elif name == "lists":
        write_parquet(folder / "a.parquet", VECTORS, embedding=pyarrow.array(VECTORS.tolist()))
    elif name == "no column":
        write_parquet(folder / "a.parquet", VECTORS, embedding=None)
    elif name == "maker":
        write_parquet(folder / "a.parquet", VECTORS, maker=None)
        table = pyarrow.parquet.read_table(folder / "a.parquet")
        table = table.replace_schema_metadata({embedding_files.MAKER: json.dumps(["a", "list"])})
        pyarrow.parquet.write_table(table, folder / "a.parquet")
        write_parquet(folder / "b.parquet", VECTORS[:5], first=50)
    elif name == "cut":
        data = (folder / "a.parquet").read_bytes()
        (folder / "a.parquet").write_bytes(data[: len(data) // 2])
    elif name == "nothing":
        (folder / "a.parquet").unlink()
    elif name == "begun":
        (folder / "plan.json").touch()
    elif name == "listed":
        (folder / "embeddings.json").write_text(json.dumps({"files": [["a.parquet", 0], ["b.parquet", 50]]}))
    elif name == "a part":
        (folder / "a.parquet").rename(folder / "a-00000-of-00002.parquet")
    elif name == "no text":
        write_parquet(folder / "b.parquet", VECTORS[:5], first=50, sentence=None)
    elif name == "list":
        (folder / "embeddings.json").write_text(json.dumps({"files": [[["a"], 0]]}))
    elif name == "a corpus":
        (folder / "a.parquet").rename(folder / "plan.json")
    elif name == "empty":
        write_parquet(folder / "a.parquet", VECTORS[:0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sizes", r"b\.parquet: has embeddings of 8 elements, a\.parquet embeddings of 12 elements"),
        ("models", r"b\.parquet: has embeddings of the model runs/a .*, a\.parquet embeddings of the model"),
        ("twice", "has 100 rows with numbers from 0 to 49, but not each exactly once; a file is missing or duplicated"),
        ("gap", "has 55 rows with numbers from 0 to 55, but not each exactly once"),
        ("same sum", "has 50 rows with numbers from 0 to 49, but not each exactly once"),
        ("same squares", "has 50 rows with numbers from 0 to 49, but not each exactly once"),
        ("prompts", r"b\.parquet: has embeddings of the model a/model.* query: , a\.parquet embeddings of the model"),
        ("too long", r"a\.parquet: row 7 of the file has an embedding whose length is not finite"),
        ("kinds", "has both .parquet and .npy, in no common order; give one kind"),
        ("unfinished", r"b\.parquet\.partial: is not complete; run the command that began it again"),
        ("nan", r"a\.parquet: row 7 of the file has an embedding whose length is not finite"),
        ("no row", r"a\.parquet: has a row without row"),
        ("negative", "has row -1; rows are counted from 0"),
        ("lists", r"a\.parquet: embedding is list<.*>; it must be a fixed_size_list of float32 or float16"),
        ("no column", r"a\.parquet: has no column embedding, but sentence, row"),
        ("maker", r"a\.parquet: what it says about its model is damaged"),
        ("cut", r"a\.parquet: cannot be read as embeddings: "),
        ("begun", r"embeddings\.json: is not complete; run the command that began it again"),
        ("listed", r"b\.parquet: missing, but embeddings\.json lists it; copy it, or encode the folder again"),
        ("a part", r"a-00001-of-00002\.parquet: missing; a-00000-of-00002\.parquet is there"),
        ("no text", r"b\.parquet: has rows without their sentences, a\.parquet rows with their sentences"),
        ("list", r"embeddings\.json: damaged; run the command that made the folder again"),
        ("nothing", "has no .parquet and no .npy"),
        ("a corpus", "has no .parquet and no .npy"),
        ("empty", "has no embeddings"),
    ],
)
def test_files_that_cannot_be_an_index_are_refused_in_a_line(tmp_path, name, message):
    write_parquet(tmp_path / "a.parquet", VECTORS)
    broken(tmp_path, name)
    with pytest.raises(UserError, match=message):
        files = EmbeddingFiles(str(tmp_path))
        assert files.maker is not None
        read(files)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(5, np.float32),
        np.zeros((5, 3)),
        np.zeros((5, 3), np.float32, order="F"),
        np.zeros((5, 3), np.dtype(np.float32).newbyteorder()),
    ],
)
def test_an_array_of_another_form_is_refused(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(UserError, match=r"a\.npy: .*; embeddings are \(rows, elements\), of float32 or float16"):
        EmbeddingFiles(str(tmp_path / "a.npy"))


def test_a_part_that_is_missing_is_named(tmp_path):
    for part in (0, 2):
        np.save(tmp_path / f"emb-{part:05}-of-00003.npy", VECTORS)
    with pytest.raises(UserError, match=r"emb-00001-of-00003\.npy: missing; emb-00000-of-00003\.npy is there"):
        EmbeddingFiles(str(tmp_path))


def test_a_npy_that_is_cut_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:-20])
    with pytest.raises(UserError, match=r"a\.npy: truncated or damaged"):
        read(EmbeddingFiles(str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "message"), [("none", "no such file or folder"), ("x.txt", "must be a folder, a .parquet or a .npy")]
)
def test_a_name_that_is_no_embeddings(tmp_path, name, message):
    (tmp_path / "x.txt").touch()
    with pytest.raises(UserError, match=message):
        EmbeddingFiles(str(tmp_path / name))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_bytes_and_bits_are_refused_clearly(dtype, tmp_path):
    np.save(tmp_path / "emb.npy", np.zeros((3, 4), dtype))
    schema = schema_of(4, np.dtype(dtype), None, False, {"precision": "int8"})
    table = rows_table(schema, None, 0, np.zeros((3, 4), dtype))
    pyarrow.parquet.write_table(table, tmp_path / "emb.parquet")
    for name in ("emb.npy", "emb.parquet"):
        with pytest.raises(
            UserError, match=rf"{name}: .*; indexes and ranges are made of embeddings in float32 or float16"
        ):
            EmbeddingFiles(str(tmp_path / name))
