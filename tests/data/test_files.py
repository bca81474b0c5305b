import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.data import refused
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.examples import read_examples
from simcse_jax.data.files import files_of, read_parquet
from simcse_jax.data.sentences import read_sentences
from simcse_jax.errors import UserError

REFERENCE_CSV = 'sent0,sent1,hard_neg\n"Hello, you","two\nlines",no\n"say ""hi""",b,c\n'
REFERENCE = (["Hello, you", 'say "hi"'], ["two\nlines", "b"], ["no", "c"])


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("train.txt", 'One, "a".\nTwo\twords\n', (['One, "a".', "Two\twords"],)),
        ("no-end.txt", "One\nTwo", (["One", "Two"],)),
        ("TRAIN.TXT", "One\n", (["One"],)),
        ("train.csv", REFERENCE_CSV, REFERENCE),
        ("two.csv", "sent0,sent1\na,b\n", (["a"], ["b"])),
        ("one.csv", "sentence\na\nb\n", (["a", "b"],)),
        ("train.tsv", 'sent0\tsent1\n"a, b\tc"\n', (['"a, b'], ['c"'])),
        (
            "train.jsonl",
            '{"sent0": "é", "sent1": "b\\nc"}\n{"sent1": "e", "sent0": "d"}\n',
            (["é", "d"], ["b\nc", "e"]),
        ),
    ],
)
def test_a_file_gives_one_column_per_role(write, name, content, expected):
    assert read_examples(write(name, content)).columns == expected


def test_parquet_gives_one_column_per_role(write_parquet):
    assert read_examples(write_parquet(sent0=["a", "b"], sent1=["c", "d"])).columns == (["a", "b"], ["c", "d"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "eins\nzwei\n"),
        ("a.csv", "sent0\neins\nzwei\n"),
        ("a.tsv", "sent0\neins\nzwei\n"),
        ("a.jsonl", '{"text": "eins"}\n{"text": "zwei"}\n'),
    ],
)
def test_byte_order_mark_and_windows_line_ends_are_dropped(write, name, content):
    path = write(name, b"\xef\xbb\xbf" + content.replace("\n", "\r\n").encode())
    assert read_examples(path, {"anchor": "sent0"} if "sent0" in content else None).columns == (["eins", "zwei"],)


@pytest.mark.parametrize(
    ("name", "content", "blank"),
    [
        ("a.txt", "eins\n\n  \t\nzwei\n\n", 3),
        ("a.csv", 'sent0,sent1\neins,p\n\n,n\n"  ",x\nzwei,q\n', 3),
        ("a.tsv", "sent0\tsent1\neins\tp\n\t\nzwei\tq\n", 1),
        ("a.jsonl", '\n{"text": "eins"}\n{"text": " "}\n\n{"text": null}\n{"text": "zwei"}\n', 4),
    ],
)
def test_blank_rows_are_skipped_and_counted(write, name, content, blank):
    examples = read_examples(write(name, content))
    assert (examples.columns[0], examples.blank, len(examples)) == (["eins", "zwei"], blank, 2)


def test_null_cells_of_parquet_are_skipped_and_counted(write_parquet):
    examples = read_examples(write_parquet(sent0=["a", None, "c", "d"], sent1=["e", "f", None, "h"]))
    assert (examples.columns, examples.blank) == ((["a", "d"], ["e", "h"]), 2)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.txt", "", ["holds no sentences"]),
        ("a.csv", "", ["empty", "first line"]),
        ("a.tsv", "", ["empty", "first line"]),
        ("a.jsonl", "", ["holds no sentences"]),
        ("a.parquet", "", ["not a readable parquet file"]),
        ("a.csv", "sent0,sent1\n", ["holds no sentences"]),
        ("a.txt", "\n  \n\n", ["holds no sentences", "3 blank rows"]),
        ("a.csv", "sent0,sent1\n\n,\n", ["holds no sentences", "2 blank rows"]),
        ("a.jsonl", "\n\n", ["holds no sentences"]),
        ("a.txt", "gut\nschön\n".encode("latin-1"), ["line 2", "not UTF-8", "0xf6", "iconv"]),
        ("a.csv", "sent0\ngut\nschön\n".encode("latin-1"), ["line 3", "not UTF-8", "0xf6"]),
        ("a.jsonl", '{"text": "schön"}\n'.encode("latin-1"), ["line 1", "not UTF-8", "0xf6"]),
        ("a.csv", "sent0,sent1\na,b\nc\n", ["line 3", "1 columns", "line has 2"]),
        ("a.csv", 'sent0,sent1\n"a\nb",c\nd,e,f\n', ["line 4", "3 columns", "line has 2"]),
        ("a.tsv", "sent0\tsent1\na\tb\tc\n", ["line 2", "3 columns", "line has 2"]),
        ("a.csv", 'sent0,sent1\na,"b\n', ["line 2", "unexpected end of data"]),
        ("a.csv", 'sent0,sent1\n"a" b,c\n', ["line 2", "expected after"]),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', ["line 2", "not JSON"]),
        ("a.jsonl", '{"text": "a"}\n["b"]\n', ["line 2", "not a JSON object"]),
        (
            "a.jsonl",
            '{"text": "a", "sent1": "b", "neg_1": "c"}\n{"text": "a", "sent1": "b", "neg_1": "c", "neg_2": "d"}\n',
            ["line 2", "'neg_2'", "the first line lacks"],
        ),
        ("a.jsonl", '{"sent0": "a", "sent1": "b"}\n\n{"sent0": "c"}\n', ["line 3", "'sent1'", "missing"]),
        ("a.jsonl", '{"text": "a"}\n{"text": 3}\n', ["line 2", "holds 3, not text", "data.columns"]),
        ("a.txt", "the cat\nsat\n".encode("utf-16-le"), ["line 1", "zero byte", "looks like UTF-16"]),
        ("a.txt", "the cat\n".encode("utf-16-be"), ["line 1", "zero byte", "looks like UTF-16"]),
        ("a.txt", "the cat\n".encode("utf-32-be"), ["line 1", "zero byte", "looks like UTF-32"]),
        ("a.txt", "the cat\n".encode("utf-16"), ["is UTF-16, not UTF-8", "iconv -f UTF-16"]),
        ("a.txt", "the cat\n".encode("utf-32"), ["is UTF-32, not UTF-8", "iconv"]),
        ("a.txt", b"one\ntwo, a zero \0 byte\n", ["line 2", "zero byte", "a binary file"]),
        ("a.csv", b"text\nthe cat\0\n", ["line 2", "zero byte"]),
        ("a.txt", b"\x1f\x8b\x08\0", ["is a gzip file, not text"]),
        ("a.jsonl", b"PK\x03\x04", ["is a zip file, not text"]),
        ("a.txt", "one\rtwo\r", ["lines end in CR alone"]),
        ("a.csv", "text\n" + '"a" b' + "a" * 200_000, ["line 2", "expected after", "quotation mark"]),
        ("a.csv", "text,text\na,b\n", ["2 columns are called 'text'"]),
        ("a.jsonl", '{"\\ud800": "a"}\n', ["the name of the field", "a broken character (U+D800 alone)"]),
        ("a.jsonl", '{"text": ' + "[" * 10**5 + "\n", ["line 1", "recursion"]),
        ("a.jsonl", '{"text": ' + "[" * 900 + "]" * 900 + "}\n", ["line 1", "holds [[["]),
        ("a.jsonl", '{"text": -Infinity}\n', ["line 1", "holds -inf, not text"]),
        ("a.parquet", b"PAR1 is not enough", ["not a readable parquet file"]),
        ("a.json", "[]", ["unknown file type", "'.json'", ".jsonl", "hf:", "tfds:"]),
        ("a", "x", ["unknown file type", ".txt"]),
    ],
)
def test_a_bad_file_is_refused_by_name_line_and_field(write, name, content, parts):
    path = write(name, content)
    refused(path, path, *parts)


def test_a_cut_parquet_file_is_refused(write, write_parquet):
    whole = write_parquet(sent0=[f"sentence {n}" for n in range(500)])
    cut = write("cut.parquet", Path(whole).read_bytes()[:-100])
    refused(cut, cut, "not a readable parquet file")


def test_a_number_in_parquet_is_refused_by_row(write_parquet):
    refused(write_parquet(sent0=["a", "b"], sent1=[None, 7]), "train.parquet: row 2", "the field 'sent1' holds 7")


@pytest.mark.parametrize("name", ["none.txt", "none.xyz"])
def test_a_missing_file_is_named(tmp_path, name):
    refused(str(tmp_path / name), str(tmp_path / name), "no such file", "data.train")


def test_the_real_trec_questions_are_refused_as_latin_1_naming_the_line(senteval, tmp_path):
    path = shutil.copy(senteval / "TREC" / "train_5500.label", tmp_path / "trec.txt")
    refused(str(path), f"{path}: line 66", "not UTF-8", "0xf0", "iconv")


def test_blank_lines_before_a_header_and_unused_fields(tmp_path):
    (tmp_path / "a.csv").write_text("\n\nsent0,sent1\na,b\n")
    assert read_examples(str(tmp_path / "a.csv")).columns == (["a"], ["b"])
    (tmp_path / "a.jsonl").write_text('{"text": "a", "note": "n"}\n{"text": "b"}\n')
    assert read_examples(str(tmp_path / "a.jsonl")).columns == (["a", "b"],)
    refused(str(tmp_path / "a.jsonl"), "line 2: the field 'note' is missing", anchor="note")
    (tmp_path / "b.jsonl").write_text('{"text": "\\ud800"}\n')
    refused(str(tmp_path / "b.jsonl"), "line 1", "a broken character")


def odd_columns():
    """A column of text that is not UTF-8, and one of times that Python does not have."""
    import pyarrow

    offsets = np.array([0, 1, 2], np.int32).tobytes()
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, *map(pyarrow.py_buffer, (offsets, b"\xffa"))])
    return {"text": text, "time": pyarrow.array([2**62, 1]).view(pyarrow.timestamp("us"))}


def test_columns_of_parquet_that_are_not_needed_are_not_read(write_parquet):
    odd = odd_columns()
    path = write_parquet(**odd, sent1=["p", "q"], sent0=["a", "b"], label=[0, 1])
    assert read_examples(path).columns == (["a", "b"], ["p", "q"])
    assert read_examples(path, positives="entailment").columns == (["a"], ["p"])
    assert read_examples(path, labels=True).labels.tolist() == [0, 1]
    assert read_sentences(path, "sent0") == ["a", "b"]
    for name in odd:
        refused(path, path, "damaged after row 0", anchor=name)
        with pytest.raises(UserError, match="damaged after row 0"):
            read_sentences(path, name)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "a.txt").mkdir()
    refused(str(tmp_path / "a.txt"), "data.train", "a folder")


def test_the_names_of_labels_that_datasets_writes_count(tmp_path):
    """Its `to_parquet` keeps what the numbers mean; the order of the names is the set's own."""
    datasets = pytest.importorskip("datasets")
    features = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
    features["label"] = datasets.ClassLabel(names=["entailment", "contradiction", "neutral"])
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["p", "q", "r"], "label": [1, 2, -1]}
    data = datasets.Dataset.from_dict(rows, datasets.Features(features))
    data.to_parquet(tmp_path / "a.parquet")
    data.save_to_disk(tmp_path / "saved")
    for source in (str(tmp_path / "a.parquet"), f"hf:{tmp_path / 'saved'}"):
        assert read_examples(source, positives="neutral").columns == (["b"], ["q"])
        assert read_examples(source, positives="contradiction").columns == (["a"], ["p"])


@pytest.mark.parametrize("said", [b"{", b"[]", b'{"info": {"features": {"a": {"_type": "ClassLabel", "names": 3}}}}'])
def test_other_metadata_says_nothing_of_labels(tmp_path, said):
    table = pyarrow.table({"a": ["x"], "label": [1]}).replace_schema_metadata({b"huggingface": said})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    _, rows = read_parquet(tmp_path / "a.parquet")
    assert [list(row.fields) for row in rows] == [["x", 1]]


def test_names_of_a_folder_are_sorted_and_hidden_ones_left_out(tmp_path):
    for name in ("b.csv", "a.txt", ".hidden.txt", "._a.txt", "_SUCCESS", "_part.txt", "README.md", "c[1].txt"):
        (tmp_path / name).write_text("a cat\n")
    (tmp_path / "more.txt").mkdir()
    inside = [f"{tmp_path}/{name}" for name in ("a.txt", "b.csv", "c[1].txt")]
    assert files_of(str(tmp_path)) == files_of(f"{tmp_path}/") == inside
    assert files_of(f"{tmp_path}/*.csv") == inside[1:2]
    assert files_of(f"{tmp_path}/_*.txt") == [f"{tmp_path}/_part.txt"]  # asked for by name
    assert files_of(inside[2]) == inside[2:]  # a file, although its name looks like a pattern
    assert files_of("no/such.txt") == ["no/such.txt"]


def test_a_folder_or_a_pattern_without_files_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("text")
    with pytest.raises(UserError, match=r"a folder without \.txt, \.csv"):
        files_of(str(tmp_path))
    with pytest.raises(UserError, match="no file matches"):
        files_of(f"{tmp_path}/*.txt")


@NEEDS_GCSFS
def test_a_folder_of_a_bucket(store):
    for name in ("text/b.txt", "text/a.txt", "text/_SUCCESS"):
        store.put(name, b"a cat\n")
    assert files_of("gs://bucket/text") == files_of("gs://bucket/text/*.txt")
