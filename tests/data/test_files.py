import numpy as np
import pyarrow.parquet
from support.data import raises, refused
from support.later import later
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.examples import read_examples
from simcse_jax.data.files import files_of, read_parquet
from simcse_jax.data.sentences import read_sentences

datasets = later("datasets")
REFERENCE = 'sent0,sent1,hard_neg\n"Hello, you","two\nlines",no\n"say ""hi""",b,c\n'
JSON = '{"sent0": "é", "sent1": "b\\nc"}\n{"sent1": "e", "sent0": "d"}\n'


def test_a_file_gives_one_column_per_role_or_is_refused_by_line_and_field(write, tmp_path, write_parquet):
    for name, content, expected in (
        ("train.txt", 'One, "a".\nTwo\twords\n', (['One, "a".', "Two\twords"],)),
        ("TRAIN.TXT", "  One \t\n", (["One"],)),
        ("train.csv", REFERENCE, (["Hello, you", 'say "hi"'], ["two\nlines", "b"], ["no", "c"])),
        ("blank.csv", "\n\nsent0,sent1\na,b\n", (["a"], ["b"])),
        ("one.csv", "sentence\na\nb\n", (["a", "b"],)),
        ("train.tsv", 'sent0\tsent1\n"a, b\tc"\n', (['"a, b'], ['c"'])),
        ("train.jsonl", JSON, (["é", "d"], ["b\nc", "e"])),
        ("unused.jsonl", '{"text": "a", "note": "n"}\n{"text": "b"}\n', (["a", "b"],)),
    ):
        assert read_examples(write(name, content)).columns == expected
    for name, *lines in (
        ("a.txt", "eins", "zwei"),
        ("a.csv", "sent0", "eins", "zwei"),
        ("a.tsv", "sent0", "eins", "zwei"),
        ("a.jsonl", '{"text": "eins"}', '{"text": "zwei"}'),
    ):
        path = write(name, b"\xef\xbb\xbf" + "".join(f"{line}\r\n" for line in lines).encode())
        assert read_examples(path, {"anchor": "sent0"} if "sent0" in lines else None).columns == (["eins", "zwei"],)
    for name, content, blank in (
        ("a.txt", "eins\n\n  \t\nzwei\n\n", 3),
        ("a.csv", 'sent0,sent1\neins,p\n\n,n\n"  ",x\nzwei,q\n', 3),
        ("a.tsv", "sent0\tsent1\neins\tp\n\t\nzwei\tq\n", 1),
        ("a.jsonl", '\n{"text": "eins"}\n{"text": " "}\n\n{"text": null}\n{"text": "zwei"}\n', 4),
    ):
        examples = read_examples(write(name, content))
        assert (examples.columns[0], examples.blank, len(examples)) == (["eins", "zwei"], blank, 2)
    for name, content, *parts in (
        ("a.csv", "", "empty", "first line"),
        ("a.txt", "\n  \n\n", "holds no sentences", "3 blank rows"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "line 2", "not JSON"),
        ("a.jsonl", '{"text": ' + "[" * 10**5 + "\n", "line 1", "recursion"),
        ("a.jsonl", '{"text": "a"}\n["b"]\n', "line 2", "not an object"),
        ("a.jsonl", '["a", "b"]\n', "line 1", "one object a line"),
        ("a.jsonl", '["a", "b", "c"]\n', "line 1", "one object a line"),
        ("a.jsonl", '["a", "b", 0.5]\n', "line 1", "one object a line"),
        ("a.jsonl", '[\n  {"text": "a"}\n]\n', "line 1", "one object a line"),
        ("a.jsonl", '[{"text": "a"}]\n', "line 1", "one object a line"),
        ("a.jsonl", '{\n  "text": "a"\n}\n', "line 1", "one object a line"),
        ("a.jsonl", '{"sent0": "a", "sent1": "b"}\n\n{"sent0": "c"}\n', "line 3", "'sent1' is missing"),
        ("a.jsonl", '{"\\ud800": "a"}\n', "the name of the field", "a broken character (U+D800 alone)"),
        ("a.csv", "text,text\na,b\n", "2 columns are called 'text'"),
        ("a.parquet", "PAR1 is not enough", "not a readable parquet file"),
        ("a.json", "[]", "unknown file type '.json'", ".jsonl"),
        ("a.csv.gz", "", "unknown file type '.gz'"),
        ("a.doc", "", "unknown file type '.doc'", ".parquet", "hf:"),
    ):
        refused(path := write(name, content), path, *parts)
    refused(str(tmp_path / "none.xyz"), "none.xyz", "no such file", "data.train")
    (tmp_path / "b.txt").mkdir()
    refused(str(tmp_path / "b.txt"), "data.train", "a folder")
    examples = read_examples(write_parquet(sent0=["a", None, "c", "d"], sent1=["e", "f", None, "h"]))
    assert (examples.columns, examples.blank) == ((["a", "d"], ["e", "h"]), 2)
    refused(write_parquet(sent0=["a", "b"], sent1=[None, 7]), "train.parquet: row 2", "the field 'sent1' holds 7")
    # A column of text that is not UTF-8, and one of times that Python does not have.
    offsets = np.array([0, 1, 2], np.int32).tobytes()
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, *map(pyarrow.py_buffer, (offsets, b"\xffa"))])
    odd = {"text": text, "time": pyarrow.array([2**62, 1]).view(pyarrow.timestamp("us"))}
    path = write_parquet(**odd, sent1=["p", "q"], sent0=["a", "b"], label=[0, 1])
    assert read_examples(path).columns == (["a", "b"], ["p", "q"])
    assert read_examples(path, positives="entailment").columns == (["a"], ["p"])
    assert read_examples(path, labels=True).labels.tolist() == [0, 1]
    assert read_sentences(path, "sent0") == ["a", "b"]
    for name in odd:
        refused(path, path, "damaged after row 0", anchor=name)
    # Its `to_parquet` keeps what the numbers mean; the order of the names is the set's own.
    features = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
    features["label"] = datasets.ClassLabel(names=["entailment", "contradiction", "neutral"])
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["p", "q", "r"], "label": [1, 2, -1]}
    datasets.Dataset.from_dict(rows, datasets.Features(features)).to_parquet(tmp_path / "a.parquet")
    assert read_examples(str(tmp_path / "a.parquet"), positives="neutral").columns == (["b"], ["q"])
    assert read_examples(str(tmp_path / "a.parquet"), positives="contradiction").columns == (["a"], ["p"])
    for said in (b"{", b"[]", b'{"info": {"features": {"a": {"_type": "ClassLabel", "names": 3}}}}'):
        table = pyarrow.table({"a": ["x"], "label": [1]}).replace_schema_metadata({b"huggingface": said})
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        assert [list(row.fields) for row in read_parquet(tmp_path / "a.parquet")[1]] == [["x", 1]]


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
    raises(f"{tmp_path}/*.tsv: no file matches", files_of, f"{tmp_path}/*.tsv")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "README.md").touch()
    raises(f"{tmp_path}/new: a folder without .txt, .csv", files_of, f"{tmp_path}/new")


@NEEDS_GCSFS
def test_a_folder_of_a_bucket(store):
    for name in ("text/b.txt", "text/a.txt", "text/_SUCCESS"):
        store.put(name, b"a cat\n")
    found = [f"gs://bucket/text/{name}.txt" for name in "ab"]
    assert files_of("gs://bucket/text") == files_of("gs://bucket/text/*.txt") == found
