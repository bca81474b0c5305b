import numpy as np
import pyarrow.parquet
import pytest
from support.data import raises
from support.later import later
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.sentences import SentenceFile, SentenceFiles, check_sentences, read_sentences
from simcse_jax.encoding.arguments import embeddings_or_sentences

datasets, pandas, polars = map(later, ("datasets", "pandas", "polars"))
SENTENCES = ["One, two.", "", "Drei 🐼", "Drei 🐼"]
TEXTS = ["A dog runs.", "Übung"]
FILES = {
    ".txt": "\n".join(SENTENCES) + "\n",
    ".csv": 'id,sentence\n1,"One, two."\n2,\n3,Drei 🐼\n4,Drei 🐼\n',
    ".tsv": "id\tsentence\n1\tOne, two.\n2\t\n3\tDrei 🐼\n4\tDrei 🐼\n",
    ".jsonl": '{"id": 1, "sentence": "One, two."}\n\n{"sentence": "Drei 🐼"}\n{"sentence": "Drei 🐼"}\n',
    ".parquet": "",
}


def written(folder, suffix: str):
    path = folder / f"corpus{suffix}"
    path.write_text(FILES[suffix])
    if suffix == ".parquet":
        table = {"id": [1, 2, 3, 4], "sentence": [SENTENCES[0], None, *SENTENCES[2:]]}
        pyarrow.parquet.write_table(pyarrow.table(table), path, row_group_size=3)
    return path


def test_every_row_is_a_sentence_from_any_place_on_counted_and_hashed_and_mistakes_are_named(tmp_path):
    for suffix in FILES:
        path = written(tmp_path, suffix)
        assert read_sentences(path) == read_sentences(str(path), "sentence") == SENTENCES
        file = SentenceFile(path)
        rows, places = file.count(interval=1)
        assert rows == 4 and len(places) == (0 if suffix == ".parquet" else 4)
        for first in range(6):
            assert list(file.read(first)) == SENTENCES[first:]
        for first, place in enumerate(places):
            assert list(file.read(first, place)) == SENTENCES[first:]
        assert file.count(interval=3)[1] == places[::3]
    (tmp_path / "a.jsonl").write_text('{"n": 1, "body": "one"}\n{"n": null, "body": "two"}\n')
    assert read_sentences(tmp_path / "a.jsonl", "body") == ["one", "two"]
    (tmp_path / "a.csv").write_text("body\none\ntwo\n")
    assert read_sentences(tmp_path / "a.csv") == ["one", "two"]
    for table in (",body\n1,one", "id,body,\n1,one,", "label,body\n1,one", "Text,title\none,two", "Nr.,body\n1,one"):
        (tmp_path / "a.csv").write_text(table + "\n")
        assert read_sentences(tmp_path / "a.csv") == ["one"]  # as in training
    (tmp_path / "a.csv").write_text(",".join(f"column {n}" for n in range(300)) + "\n" + "x," * 300)
    raises("it has column 10, column 210, column 190, … (300 columns)", read_sentences, tmp_path / "a.csv", "colum 10")
    (tmp_path / "a.csv").write_text("text,n,text\na,b,c\n")
    assert read_sentences(tmp_path / "a.csv", "n") == ["b"]
    raises("2 columns are called 'text'", read_sentences, tmp_path / "a.csv")
    for name, content, column, message in (
        ("a.csv", "n,body\n1,x\n", None, ": which column to use? It has n, body"),
        ("a.csv", "A dog runs.\n" + "Some cats sleep.\n" * 30, None, ": name the column in the first line"),
        ("a.csv", "n,body\n1,x\n", "text", ": no column 'text'; it has n, body"),
        ("a.txt", "\n \n", None, ": holds no sentences"),
        ("a", None, None, ": no such file"),
    ):
        if content is not None:
            (tmp_path / name).write_text(content)
        raises(f"{name}{message}", read_sentences, tmp_path / name, column)
    (tmp_path / "a.csv").write_text("n,text,other\n1,the cat,a dog\n2,,\n")
    file, other = SentenceFile(tmp_path / "a.csv"), SentenceFile(str(tmp_path / "a.csv"), "other")
    assert list(file) == ["the cat", ""] and list(other) == ["a dog", ""]
    assert file.scan() == file.scan() and file.scan()[0] == 2 and file.scan()[1] != other.scan()[1]
    (tmp_path / "a.csv").write_text("text\n")
    raises("a.csv: holds no sentences", SentenceFile(tmp_path / "a.csv").scan)
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.nulls(3)}), tmp_path / "a.parquet")
    raises("a.parquet: holds no sentences, only 3 blank rows", SentenceFile(tmp_path / "a.parquet").scan)
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid,text\r\n1,"a\r\ncat"\r\n2,"a ""dog"""\r\n3\r\n')
    raises("line 5: 1 columns", SentenceFile(path).count, interval=1)
    path.write_bytes(path.read_bytes().replace(b"\r\n3\r\n", b"\r\n3,x\r\n"))
    file = SentenceFile(path)
    rows, places = file.count(interval=1)
    assert rows == 3 and [list(file.read(place=place)) for place in places[1:]] == [['a "dog"', "x"], ["x"]]


@NEEDS_GCSFS
@pytest.mark.parametrize("suffix", [".txt", ".parquet"])
def test_a_file_in_a_bucket_that_cannot_be_read_is_named_in_a_line(tmp_path, store, monkeypatch, caplog, suffix):
    name = f"gs://bucket/a{suffix}"
    store.put(f"a{suffix}", written(tmp_path, suffix).read_bytes())
    file = SentenceFile(name)
    assert list(file.read(1)) == SENTENCES[1:]
    monkeypatch.setattr(store, "refused", r"GET /(download/)?storage/v1/b/bucket/o/a.*alt=media")
    raises(f"{name}: ", list, file)
    monkeypatch.setattr(store, "refused", r"GET /storage/v1/b/bucket/o")
    raises(f"{name}: cannot be read: ", SentenceFile, name)
    assert not [record for record in caplog.records if record.name.startswith(("fsspec", "gcsfs"))]


def tables(columns):
    kinds = [dict, pandas.DataFrame, polars.DataFrame, pyarrow.table, pyarrow.record_batch, datasets.Dataset.from_dict]
    return [kind(columns) for kind in kinds]


def test_sentences_are_a_list_or_a_column_of_a_table_and_what_is_not_text_is_named():
    columns = [pandas.Series(TEXTS), pandas.Series(TEXTS, dtype="category"), pandas.Index(TEXTS), polars.Series(TEXTS)]
    columns += [pyarrow.array(TEXTS), pyarrow.chunked_array([TEXTS]), pyarrow.array(TEXTS).dictionary_encode()]
    columns += [tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, object)]
    for column in (*columns, *(table["text"] for table in tables({"text": TEXTS}))):
        assert check_sentences(column) == check_sentences(embeddings_or_sentences(column, 2)) == TEXTS, type(column)
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    for table in (pandas.DataFrame(vectors), polars.DataFrame(vectors), pyarrow.array(vectors.tolist())):
        np.testing.assert_array_equal(embeddings_or_sentences(table, 3), vectors)
    series = pandas.Series({"columns": "a cat", "column_names": "a dog"})
    assert check_sentences(series) == ["a cat", "a dog"]
    for table in (*tables({"text": TEXTS}), {}):
        message = f"a {type(table).__name__}: give one column of sentences, such as table['text']"
        raises(message, check_sentences, table)
        raises(message, embeddings_or_sentences, table, 2)
    for wrong, message in (
        (["a", b"b"], "sentence 1 is b'b', not a string"),
        ("a", "'a': not a list of strings"),
        (1, "1: not a list of strings"),
        (["a\ud800"], "sentence 0 holds a broken character"),
        (pyarrow.array(["a", None]), "sentence 1 is None, not a string"),
        (np.array([TEXTS]), "sentence 0 is array("),
        ({"a", "b"}, "a set, not a list"),
    ):
        raises(message, check_sentences, wrong)


def test_the_files_of_a_folder_follow_one_another_and_groups_before_the_first_row_are_not_read(tmp_path, monkeypatch):
    for suffix in (".csv", ".txt", ".jsonl"):
        written(tmp_path, suffix)
    (tmp_path / "_SUCCESS.txt").write_text("no sentence\n")
    assert read_sentences(tmp_path) == SENTENCES * 3
    files = SentenceFiles(tmp_path)
    rows, fingerprint = files.scan()
    assert rows == 12 and not files.has_changed()
    assert [list(files.read(first)) for first in (0, 5, 12)] == [SENTENCES * 3, (SENTENCES * 3)[5:], []]
    one, alone = SentenceFiles(tmp_path / "corpus.txt"), SentenceFile(tmp_path / "corpus.txt")
    assert one.scan() == alone.scan() != (rows, fingerprint)
    (tmp_path / "corpus.txt").write_text("another\n")
    assert files.has_changed()
    pyarrow.parquet.write_table(pyarrow.table({"text": list("abcdefg")}), tmp_path / "a.parquet", row_group_size=3)
    read, kind = [], pyarrow.parquet.ParquetFile
    real = kind.iter_batches
    monkeypatch.setattr(kind, "iter_batches", lambda *a, **more: read.append(more["row_groups"]) or real(*a, **more))
    file = SentenceFile(tmp_path / "a.parquet")
    assert [list(file.read(first)) for first in (0, 4, 6, 7)] == [list("abcdefg"), list("efg"), ["g"], []]
    assert read == [[0, 1, 2], [1, 2], [2], []]
