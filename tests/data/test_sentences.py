import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.lines import Place
from simcse_jax.data.sentences import SentenceFile, check_sentences, read_sentences
from simcse_jax.errors import UserError

SENTENCES = ["One, two.", "", "Drei 🐼", "Drei 🐼"]


def written(folder, suffix: str):
    path = folder / f"corpus{suffix}"
    if suffix == ".txt":
        path.write_text("\n".join(SENTENCES) + "\n")
    elif suffix == ".csv":
        path.write_text('id,sentence\n1,"One, two."\n2,\n3,Drei 🐼\n4,Drei 🐼\n')
    elif suffix == ".tsv":
        path.write_text("id\tsentence\n1\tOne, two.\n2\t\n3\tDrei 🐼\n4\tDrei 🐼\n")
    elif suffix == ".jsonl":
        path.write_text('{"id": 1, "sentence": "One, two."}\n\n{"sentence": "Drei 🐼"}\n{"sentence": "Drei 🐼"}\n')
    else:
        table = {"id": [1, 2, 3, 4], "sentence": [SENTENCES[0], None, *SENTENCES[2:]]}
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    return path


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_row_is_a_sentence_blank_ones_too(tmp_path, suffix):
    path = written(tmp_path, suffix)
    assert read_sentences(path) == read_sentences(str(path), "sentence") == SENTENCES


def test_only_the_chosen_column_must_be_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"n": 1, "body": "one"}\n{"n": null, "body": "two"}\n')
    assert read_sentences(tmp_path / "a.jsonl", "body") == ["one", "two"]
    (tmp_path / "a.csv").write_text("body\none\ntwo\n")
    assert read_sentences(tmp_path / "a.csv") == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.csv", "n,body\n1,x\n", None, r"a\.csv: which column to use\? It has n, body"),
        ("a.csv", "n,body\n1,x\n", "text", r"a\.csv: no column 'text'; it has n, body"),
        ("a.jsonl", '{"text": "x"}\n{"n": 1}\n', None, r"a\.jsonl: line 2: the field 'text' is missing"),
        ("a.jsonl", '{"text": "x"}\n{"text": 1}\n', None, r"a\.jsonl: line 2: the field 'text' holds 1, not text"),
        ("a.txt", "", None, r"a\.txt: holds no sentences"),
        ("a.txt", "\n \n", None, r"a\.txt: holds no sentences"),
        ("a.txt", b"one\ncaf\xe9\n", None, r"a\.txt: line 2 is not UTF-8"),
        ("a.csv", "text,b\n", None, r"a\.csv: holds no sentences"),
        ("a.csv", "text,b\nthe cat\n", None, r"a\.csv: line 2: 1 columns"),
        ("a.jsonl", '{"text": "\\ud800"}\n', None, r"a\.jsonl: line 1: holds a broken character"),
        ("a.parquet", "PAR1 and nonsense", None, r"a\.parquet: not a readable parquet file"),
        ("a.pdf", "one", None, r"a\.pdf: unknown file type '\.pdf'; known are \.txt"),
        ("a", None, None, r"a: no such file"),
    ],
)
def test_errors_are_reported_in_one_line(tmp_path, name, content, column, message):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as raised:
        read_sentences(tmp_path / name, column)
    assert len(str(raised.value).splitlines()) == 1


def test_a_file_s_rows_are_counted_and_hashed(tmp_path):
    (tmp_path / "a.csv").write_text("n,text,other\n1,the cat,a dog\n2,,\n")
    file, other = SentenceFile(tmp_path / "a.csv"), SentenceFile(str(tmp_path / "a.csv"), "other")
    assert list(file) == ["the cat", ""] and list(other) == ["a dog", ""]
    assert file.scan() == file.scan() and file.scan()[0] == 2 and file.scan()[1] != other.scan()[1]
    (tmp_path / "a.csv").write_text("text\n")
    with pytest.raises(UserError, match=r"a\.csv: holds no sentences"):
        SentenceFile(tmp_path / "a.csv").scan()


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="a folder; give a file of sentences"):
        read_sentences(tmp_path)


def test_sentences_are_strings():
    assert check_sentences(("a", "")) == check_sentences(np.array(["a", ""])) == ["a", ""]
    for wrong, message in (
        (["a", None], "sentence 1 is None, not a string"),
        (["a", b"b"], "sentence 1 is b'b', not a string"),
        ("a", "'a': not a list of strings"),
        (3, "3: not a list of strings"),
        (["a\ud800"], "sentence 0 holds a broken character"),
    ):
        with pytest.raises(UserError, match=message):
            check_sentences(wrong)


def test_rows_that_are_all_blank_are_refused_before_a_model_is_loaded(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.nulls(3)}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: holds no sentences, only 3 blank rows"):
        SentenceFile(tmp_path / "a.parquet").scan()


def test_a_name_of_two_columns_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,n,text\na,b,c\n")
    assert read_sentences(tmp_path / "a.csv", "n") == ["b"]
    with pytest.raises(UserError, match="2 columns are called 'text'; rename them"):
        read_sentences(tmp_path / "a.csv")


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".tsv", ".jsonl", ".parquet"])
def test_reading_begins_at_any_row(tmp_path, suffix):
    file = SentenceFile(written(tmp_path, suffix))
    rows, places = file.count(every=1)
    assert rows == 4 and len(places) == (0 if suffix == ".parquet" else 4)
    for first in range(6):
        assert list(file.read(first)) == SENTENCES[first:]
    for first, place in enumerate(places):
        assert list(file.read(first, place)) == SENTENCES[first:]
    assert file.count(every=3)[1] == places[::3]


def test_places_in_a_csv_are_between_rows_not_lines_and_errors_name_the_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid,text\r\n1,"a\r\ncat"\r\n2,"a ""dog"""\r\n3\r\n')
    file = SentenceFile(path)
    with pytest.raises(UserError, match="line 5: 1 columns"):
        file.count(every=1)
    path.write_bytes(path.read_bytes().replace(b"\r\n3\r\n", b"\r\n3,x\r\n"))
    file = SentenceFile(path)
    rows, places = file.count(every=1)
    assert rows == 3 and [list(file.read(place=place)) for place in places[1:]] == [['a "dog"', "x"], ["x"]]
    (tmp_path / "b.txt").write_bytes(b"one\ntwo\n\xff\n")
    with pytest.raises(UserError, match="line 3 is not UTF-8"):
        list(SentenceFile(tmp_path / "b.txt").read(place=Place(1, 4)))


def test_groups_of_rows_before_the_first_are_not_read(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.table({"text": list("abcdefg")}), tmp_path / "a.parquet", row_group_size=3)
    read, original = [], pyarrow.parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        pyarrow.parquet.ParquetFile,
        "iter_batches",
        lambda self, *args, **options: read.append(options["row_groups"]) or original(self, *args, **options),
    )
    file = SentenceFile(tmp_path / "a.parquet")
    assert [list(file.read(first)) for first in (0, 4, 6, 7)] == [list("abcdefg"), list("efg"), ["g"], []]
    assert read == [[0, 1, 2], [1, 2], [2], []]


@NEEDS_GCSFS
@pytest.mark.parametrize("suffix", [".txt", ".parquet"])
def test_a_file_in_a_bucket_that_cannot_be_read_is_named_in_a_line(tmp_path, store, monkeypatch, caplog, suffix):
    store.put(f"a{suffix}", written(tmp_path, suffix).read_bytes())
    file = SentenceFile(f"gs://bucket/a{suffix}")
    assert list(file.read(1)) == SENTENCES[1:]
    monkeypatch.setattr(store, "refused", r"GET /(download/)?storage/v1/b/bucket/o/a.*alt=media")
    with pytest.raises(UserError, match=rf"^gs://bucket/a\{suffix}: [^\n]*permission"):
        list(file)
    monkeypatch.setattr(store, "refused", r"GET /storage/v1/b/bucket/o")
    with pytest.raises(UserError, match=rf"^gs://bucket/a\{suffix}: cannot be read: [^\n]*permission"):
        SentenceFile(f"gs://bucket/a{suffix}")
    assert not [record for record in caplog.records if record.name.startswith(("fsspec", "gcsfs"))]
