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
    rows, sentences, embeddings = zip(*files.batches(), strict=True)
    return np.concatenate(rows), [text for batch in sentences for text in batch.to_pylist()], np.concatenate(embeddings)


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
    for name, part in (("a", slice(0, 20)), ("b", slice(20, 50))):
        write_parquet(tmp_path / f"{name}.parquet", vectors[part], row=None)
    files = EmbeddingFiles(str(tmp_path))  # without numbers of rows they are numbered in order
    rows, _, embeddings = read(files)
    assert (files.first, files.last, rows.tolist()) == (0, 49, list(range(50)))
    np.testing.assert_array_equal(embeddings, vectors)


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


def vectors_with(value: float) -> np.ndarray:
    changed = VECTORS.copy()
    changed[7, 3] = value
    return changed


def rows_with(places: list[int], numbers: list[int]) -> pyarrow.Array:
    rows = np.arange(50)
    rows[places] = numbers
    return pyarrow.array(rows)


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
    return lambda folder: (folder / "embeddings.json").write_text(json.dumps({"files": files}))


NOT_ONCE = "but not each exactly once"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda f: second(f, clustered(5, 8)),
            r"b\.parquet: has embeddings of 8 elements, a\.parquet embeddings of 12",
        ),
        (
            lambda f: second(f, maker=MODEL._replace(sha256="1" * 64)),
            r"b\.parquet: has embeddings of the model runs/a .*, a\.parquet embeddings of the model",
        ),
        (
            with_a_prompt,
            r"b\.parquet: has embeddings of the model a/model.* query: , a\.parquet embeddings of the model",
        ),
        (lambda f: second(f, sentence=None), r"b\.parquet: has rows without their sentences, a\.parquet rows with"),
        (lambda f: second(f, VECTORS, 0), f"has 100 rows with numbers from 0 to 49, {NOT_ONCE}"),
        (lambda f: second(f, first=51), f"has 55 rows with numbers from 0 to 55, {NOT_ONCE}"),
        # 0 and 3 in place of 1 and 2: the same number, ends and sum; 2, 3 and 7 of 1, 5 and 6: the same squares too.
        (lambda f: changed(f, row=rows_with([10, 11, 12, 13], [10, 10, 13, 13])), f"from 0 to 49, {NOT_ONCE}"),
        (lambda f: changed(f, row=rows_with([1, 5, 6], [2, 3, 7])), f"from 0 to 49, {NOT_ONCE}"),
        (lambda f: changed(f, vectors_with(3e38)), r"a\.parquet: row 7 of the file has .* length is not finite"),
        (lambda f: changed(f, vectors_with(np.nan)), r"a\.parquet: row 7 of the file has .* length is not finite"),
        (
            lambda f: changed(f, row=pyarrow.array([None, *range(1, 50)], pyarrow.int64())),
            r"a\.parquet: has a row without",
        ),
        (lambda f: changed(f, first=-1), "has row -1; rows are counted from 0"),
        (
            lambda f: changed(f, embedding=pyarrow.array(VECTORS.tolist())),
            r"a\.parquet: embedding is list<.*>; it must",
        ),
        (lambda f: changed(f, embedding=None), r"a\.parquet: has no column embedding, but sentence, row"),
        (of_a_damaged_maker, r"a\.parquet: what it says about its model is damaged"),
        (lambda f: (f / "a.parquet").write_bytes(b"PAR1" * 99), r"a\.parquet: cannot be read as embeddings: "),
        (lambda f: changed(f, VECTORS[:0]), "has no embeddings"),
        (lambda f: np.save(f / "b.npy", VECTORS), "has both .parquet and .npy"),
        (lambda f: (f / "b.parquet.partial").touch(), r"b\.parquet\.partial: is not complete"),
        (lambda f: (f / "plan.json").touch(), r"embeddings\.json: is not complete"),
        (listing([["a.parquet", 0], ["b.parquet", 50]]), r"b\.parquet: missing, but embeddings\.json lists it"),
        (listing([[["a"], 0]]), r"embeddings\.json: damaged"),
        (
            lambda f: (f / "a.parquet").rename(f / "a-00000-of-00002.parquet"),
            r"a-00001-of-00002\.parquet: missing; a-00000-of-00002\.parquet is there",
        ),
        (lambda f: (f / "a.parquet").rename(f / "plan.json"), "has no .parquet and no .npy"),
    ],
)
def test_files_that_cannot_be_an_index_are_refused(tmp_path, spoil, message):
    write_parquet(tmp_path / "a.parquet", VECTORS)
    spoil(tmp_path)
    with pytest.raises(UserError, match=message):
        read(EmbeddingFiles(str(tmp_path)))


def test_an_array_of_another_form_is_refused(tmp_path):
    for array in (
        *(
            np.zeros(5, np.float32),
            np.zeros((5, 3)),
            np.zeros((5, 3), np.float32, order="F"),
            np.zeros((5, 0), np.float32),
        ),
        np.zeros((5, 3), np.dtype(np.float32).newbyteorder()),
    ):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(UserError, match=r"a\.npy: .*; embeddings are \(rows, elements\), of float32 or float16"):
            EmbeddingFiles(str(tmp_path / "a.npy"))


def test_a_name_that_is_no_embeddings_and_a_npy_that_is_cut_are_refused(tmp_path):
    (tmp_path / "x.txt").touch()
    for name, message in (("none", "no such file or folder"), ("x.txt", "must be a folder, a .parquet or a .npy")):
        with pytest.raises(UserError, match=message):
            EmbeddingFiles(str(tmp_path / name))
    np.save(tmp_path / "a.npy", VECTORS)
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:-20])
    with pytest.raises(UserError, match=r"a\.npy: truncated or damaged"):
        read(EmbeddingFiles(str(tmp_path)))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_bytes_and_bits_are_refused_clearly(dtype, tmp_path):
    np.save(tmp_path / "emb.npy", np.zeros((3, 4), dtype))
    schema = schema_of(4, np.dtype(dtype), None, False, {"precision": "int8"})
    pyarrow.parquet.write_table(rows_table(schema, None, 0, np.zeros((3, 4), dtype)), tmp_path / "emb.parquet")
    for name in ("emb.npy", "emb.parquet"):
        with pytest.raises(UserError, match=rf"{name}: .*; indexes and ranges are made of embeddings in float32"):
            EmbeddingFiles(str(tmp_path / name))
