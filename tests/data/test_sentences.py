import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.rows import Place
from simcse_jax.data.sentences import SentenceFile, SentenceFiles, check_sentences, only_column, read_sentences
from simcse_jax.encoding.arguments import embeddings_or_sentences
from simcse_jax.errors import UserError

SENTENCES = ["One, two.", "", "Drei 🐼", "Drei 🐼"]
TEXTS = ["A dog runs.", "Übung"]


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
        ("a.csv", "A dog runs.\nCats sleep.\n", None, r"a\.csv: 'A dog runs\.' looks like a sentence, .* \(--column\)"),
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


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"a folder without \.txt"):
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


def tables(columns):
    """The same columns as a table of each kind whose package is installed."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    datasets = pytest.importorskip("datasets")
    kinds = [dict, pandas.DataFrame, polars.DataFrame, pyarrow.table, pyarrow.record_batch, datasets.Dataset.from_dict]
    return [kind(columns) for kind in kinds]


def test_the_only_column_of_a_table_is_its_sentences():
    records = np.array([(text,) for text in TEXTS], [("text", "U20")])
    for table in (*tables({"text": TEXTS}), records):
        assert check_sentences(table) == TEXTS, type(table)
        assert check_sentences(embeddings_or_sentences(table, 2)) == TEXTS, type(table)
        assert only_column(table)[0] == "text"


def test_a_column_is_its_values():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = [pandas.Series(TEXTS), pandas.Series(TEXTS, dtype="category"), pandas.Index(TEXTS), polars.Series(TEXTS)]
    columns += [pyarrow.array(TEXTS), pyarrow.chunked_array([TEXTS]), pyarrow.array(TEXTS).dictionary_encode()]
    columns += [np.array(TEXTS), np.array(TEXTS, object), *(table["text"] for table in tables({"text": TEXTS}))]
    for column in columns:
        assert check_sentences(column) == check_sentences(embeddings_or_sentences(column, 2)) == TEXTS, type(column)
        assert only_column(column)[0] is None


def test_a_table_of_several_columns_is_refused_by_their_names():
    for table in tables({"id": [1, 2], "text": TEXTS}):
        message = rf"a {type(table).__name__} with the columns id, text: give one .*, such as table\['text'\]"
        for read in (check_sentences, lambda given: embeddings_or_sentences(given, 2)):
            with pytest.raises(UserError, match=message):
                read(table)
    with pytest.raises(UserError, match=r"columns 0, 1, 2, 3, 4, 5, …: give one .*, such as table\[0\]"):
        check_sentences({number: TEXTS for number in range(7)})
    with pytest.raises(UserError, match="a dict without columns"):
        check_sentences({})


def test_what_is_not_text_is_refused_with_its_column_and_row():
    for table in tables({"n": [1, 2]}):
        with pytest.raises(UserError, match="column 'n': sentence 0 is 1, not a string"):
            check_sentences(table)
    for table in tables({"text": ["a", None]}):
        with pytest.raises(UserError, match=r"column 'text': query 1 is (None|nan), not a string"):
            check_sentences(embeddings_or_sentences(table, 2), "query")
    for wrong, message in (
        (pyarrow.array(["a", None]), "sentence 1 is None, not a string"),
        ({"text": "a"}, "column 'text': 'a': not a list of strings"),
        (np.array([TEXTS]), r"an array of shape \(1, 2\), not a list of strings"),
        (np.zeros((2, 3)), r"an array of shape \(2, 3\)"),
        ({"text": np.array([TEXTS])}, r"an array of shape \(1, 2\)"),
        ({"a", "b"}, "a set, not a list; give its sentences in their order"),
    ):
        with pytest.raises(UserError, match=message):
            check_sentences(wrong)


def test_a_table_of_numbers_is_embeddings_where_these_are_taken():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    for table in (pandas.DataFrame(vectors), polars.DataFrame(vectors), pyarrow.array(vectors.tolist())):
        np.testing.assert_array_equal(embeddings_or_sentences(table, 3), vectors)


def test_no_package_of_tables_is_imported():
    code = (
        "import sys; from simcse_jax.data.sentences import only_column; only_column({'text': ['a']}); "
        "print(sys.modules.keys() & {'pandas', 'polars', 'datasets', 'pyarrow'})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "set()"


def test_names_of_rows_and_columns_are_not_attributes_of_a_table():
    pd = pytest.importorskip("pandas")
    series = pd.Series({"columns": "a cat", "column_names": "a dog"})
    assert check_sentences(series) == ["a cat", "a dog"]
    assert check_sentences(pd.DataFrame({"column_names": ["a cat"]})) == ["a cat"]


def test_a_column_that_is_read_once_is_kept():
    column = {"text": (text for text in ["a cat", "a dog"])}
    assert check_sentences(embeddings_or_sentences(column, 4)) == ["a cat", "a dog"]
    for take in (check_sentences, lambda given: embeddings_or_sentences(given, 4)):
        with pytest.raises(UserError, match="column 'a': 1: not a list of strings"):
            take({"a": 1})


def test_the_files_of_a_folder_follow_one_another(tmp_path):
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
