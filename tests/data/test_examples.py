import shutil
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from simcse_jax.data.datasets import LIBRARIES
from simcse_jax.data.examples import read_examples
from simcse_jax.errors import UserError

REFERENCE_CSV = 'sent0,sent1,hard_neg\n"Hello, you","two\nlines",no\n"say ""hi""",b,c\n'
REFERENCE = (["Hello, you", 'say "hi"'], ["two\nlines", "b"], ["no", "c"])


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def write_parquet(tmp_path):
    def write(**columns: list) -> str:
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "train.parquet")
        return str(tmp_path / "train.parquet")

    return write


def refused(specification: str, *parts: str, options: dict | None = None, **columns: str) -> None:
    """The specification is refused, in a message of one line that has all the parts."""
    with pytest.raises(UserError) as error:
        read_examples(specification, columns, **(options or {}))
    assert "\n" not in str(error.value)
    assert [part for part in parts if part not in str(error.value)] == [], str(error.value)


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
def test_a_file_gives_a_column_a_role(write, name, content, expected):
    assert read_examples(write(name, content)).columns == expected


def test_parquet_gives_a_column_a_role(write_parquet):
    assert read_examples(write_parquet(sent0=["a", "b"], sent1=["c", "d"])).columns == (["a", "b"], ["c", "d"])


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("hard_neg,sent1,sent0", "n,p,a", (["a"], ["p"], ["n"])),
        ("positive,anchor", "p,a", (["a"], ["p"])),
        ("id,negative,text,positive", "1,n,a,p", (["a"], ["p"], ["n"])),
        ("id,label,source,text", "1,2,3,a", (["a"],)),
        ("left,right", "a,p", (["a"], ["p"])),
        ("x,y,z", "a,p,n", (["a"], ["p"], ["n"])),
        # Labels that nobody asks for are no sentences, and neutral hypotheses no hard negatives.
        ("premise,hypothesis,label", "a,p,0", (["a"], ["p"])),
        ("gold_label,x,y,z", "-,a,p,n", (["a"], ["p"], ["n"])),
        ("sent0,sent1,hard_neg,neutral", "a,p,n,m", (["a"], ["p"], ["n"])),
        ("sent0,sent1,neutral", "a,p,m", (["a"], ["p"])),
    ],
)
def test_usual_names_count_in_any_order_and_else_the_order_of_at_most_three(write, header, row, expected):
    assert read_examples(write("train.csv", f"{header}\n{row}\n")).columns == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"anchor": "d", "positive": "a"}, (["4"], ["1"])),
        ({"anchor": "b", "positive": "", "negative": ""}, (["2"],)),
        ({"negative": "sent0", "anchor": "c", "positive": "a"}, (["3"], ["1"], ["5"])),
        ({"neutral": "b", "negative": "sent0", "anchor": "c", "positive": "a"}, (["3"], ["1"], ["5"], ["2"])),
    ],
)
def test_mapped_columns_alone_are_read(write, columns, expected):
    assert read_examples(write("train.csv", "a,b,c,d,sent0\n1,2,3,4,5\n"), columns).columns == expected


def test_a_mapped_column_that_is_not_there_is_named(write):
    refused(
        write("a.csv", "id,text\n1,a\n"),
        "a.csv",
        "'txt'",
        "data.columns.positive",
        "id, text",
        positive="txt",
        anchor="",
    )


def test_more_than_three_unknown_columns_are_refused(write):
    refused(write("a.csv", "w,x,y,z\n1,2,3,4\n"), "a.csv", "w, x, y, z", "data.columns.anchor")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "eins\nzwei\n"),
        ("a.csv", "sent0\neins\nzwei\n"),
        ("a.tsv", "sent0\neins\nzwei\n"),
        ("a.jsonl", '{"text": "eins"}\n{"text": "zwei"}\n'),
    ],
)
def test_byte_order_mark_and_windows_line_ends_are_no_part_of_a_sentence(write, name, content):
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


def test_blanks_around_a_sentence_are_cut(write):
    assert read_examples(write("a.txt", "  eins \t\n")).columns == (["eins"],)


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
        ("a.csv", "sent0,sent1\na,b\nc\n", ["line 3", "1 columns", "names 2"]),
        ("a.csv", 'sent0,sent1\n"a\nb",c\nd,e,f\n', ["line 4", "3 columns", "names 2"]),
        ("a.tsv", "sent0\tsent1\na\tb\tc\n", ["line 2", "3 columns", "names 2"]),
        ("a.csv", 'sent0,sent1\na,"b\n', ["line 2", "unexpected end of data"]),
        ("a.csv", 'sent0,sent1\n"a" b,c\n', ["line 2", "expected after"]),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', ["line 2", "not JSON"]),
        ("a.jsonl", '{"text": "a"}\n["b"]\n', ["line 2", "not a JSON object"]),
        ("a.jsonl", '{"sent0": "a", "sent1": "b"}\n\n{"sent0": "c"}\n', ["line 3", "'sent1'", "missing"]),
        ("a.jsonl", '{"text": "a"}\n{"text": 3}\n', ["line 2", "holds 3, which is no text", "data.columns"]),
        ("a.parquet", b"PAR1 is not enough", ["not a readable parquet file"]),
        ("a.json", "[]", ["unknown kind of file", "'.json'", ".jsonl", "hf:", "tfds:"]),
        ("a", "x", ["unknown kind of file", ".txt"]),
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


def test_the_real_trec_questions_are_latin_1_and_say_where(senteval, tmp_path):
    path = shutil.copy(senteval / "TREC" / "train_5500.label", tmp_path / "trec.txt")
    refused(str(path), f"{path}: line 66", "not UTF-8", "0xf0", "iconv")


NLI = (
    "gold_label,sentence1,sentence2\n"
    "entailment,a,b\nNeutral,c,d\n-,e,f\nCONTRADICTION ,g,h\n,i,j\nneutral,k,l\nneutral,,m\nnonsense, ,n\n"
)


@pytest.fixture
def nli(write) -> str:
    """Four labelled pairs among two unlabelled and two blank ones."""
    return write("nli.csv", NLI)


@pytest.mark.parametrize(
    ("positives", "anchors", "labels"),
    [
        ("", "acgk", [0, 1, 2, 1]),
        ("all", "acgk", [0, 1, 2, 1]),
        ("entailment", "a", [0]),
        ("neutral", "ck", [1, 1]),
        ("contradiction", "g", [2]),
    ],
)
def test_positives_are_the_hypotheses_of_a_label(nli, positives, anchors, labels):
    examples = read_examples(nli, positives=positives, labels=True)
    assert examples.columns == (list(anchors), [chr(ord(letter) + 1) for letter in anchors])
    assert (examples.labels.tolist(), examples.labels.dtype) == (labels, np.int32)
    assert (examples.blank, examples.unlabelled) == (2, 2)
    if positives:
        same = read_examples(nli, positives=positives)
        assert (same.columns, same.labels, same.unlabelled) == (examples.columns, None, 2)


def test_labels_that_nothing_asks_for_are_not_read(nli):
    examples = read_examples(nli)
    assert (examples.columns[0], examples.labels, examples.unlabelled) == (list("acegik"), None, 0)


def test_a_label_column_leaves_the_others_as_they_are(write):
    path = write("a.csv", "y,label,sent1,sent0,hard_neg\n1,0,p,a,n\n-1,0,q,b,o\n2,0,r,c,m\n")
    examples = read_examples(path, {"label": "y", "anchor": ""})
    assert (examples.columns, examples.unlabelled) == ((["a", "c"], ["p", "r"], ["n", "m"]), 1)
    assert read_examples(path, {"label": "y"}, labels=True).labels.tolist() == [1, 2]
    mapped = read_examples(path, {"anchor": "sent1", "positive": "hard_neg"}, labels=True)
    assert (mapped.columns, mapped.labels.tolist()) == ((list("pqr"), list("nom")), [0, 0, 0])
    by_order = write("b.csv", "y,left,right\n2,a,p\n")
    assert read_examples(by_order, {"label": "y"}).columns == (["a"], ["p"])


def test_label_goes_before_gold_label(write):
    path = write("a.csv", "sent0,sent1,gold_label,label\na,b,neutral,entailment\n")
    assert read_examples(path, labels=True).labels.tolist() == [0]


def test_numbers_of_parquet_are_labels(write_parquet):
    path = write_parquet(premise=list("abcd"), hypothesis=list("efgh"), label=[2, -1, None, 0])
    examples = read_examples(path, labels=True)
    assert (examples.columns, examples.labels.tolist(), examples.unlabelled) == ((["a", "d"], ["e", "h"]), [2, 0], 2)


@pytest.mark.parametrize(
    ("content", "options", "columns", "parts"),
    [
        (
            "sent0,sent1\na,b\n",
            {"positives": "all"},
            {},
            ["a.csv", "positives=all", "sent0, sent1", "columns.label"],
        ),
        ("sent0,sent1\na,b\n", {"labels": True}, {}, ["a.csv", "objective.softmax_nli", "data.columns.label"]),
        ("sent0,sent1\na,b\n", {}, {"label": "y"}, ["a.csv", "'y'", "data.columns.label", "sent0, sent1"]),
        ("text,label\na,0\n", {"labels": True}, {}, ["a.csv", "needs pairs", "data.columns.positive"]),
        ("sent0,sent1,label\na,b,0\nc,d,maybe\n", {"labels": True}, {}, ["a.csv: line 3", "'label'", "'maybe'"]),
        ("sent0,sent1,label\na,b,3\n", {"positives": "all"}, {}, ["a.csv: line 2", "'3'", "entailment"]),
        ("sent0,sent1,label\na,b,0\n", {"positives": "neutral"}, {}, ["a.csv", "labelled neutral", "data.positives"]),
        ("sent0,sent1,label\na,b,-\n,,1\n", {"labels": True}, {}, ["1 blank rows and 1 rows without a label"]),
        ("sent0,sent1\na,b\n", {"positives": "entailed"}, {}, ["data.positives='entailed'", "entailment, neutral"]),
        ("sent0,sent1\na,b\n", {}, {"neutral": "sent1", "anchor": "sent0"}, ["data.columns.negative"]),
        ("label\n0\n", {}, {}, ["a.csv", "which columns"]),
    ],
)
def test_labels_that_are_not_there_or_wrong_are_refused(write, content, options, columns, parts):
    refused(write("a.csv", content), *parts, options=options, **columns)


def test_a_label_that_a_record_lacks_is_refused_by_line(write):
    path = write("a.jsonl", '{"sent0": "a", "sent1": "b", "label": 0}\n{"sent0": "c", "sent1": "d"}\n')
    refused(path, "line 2", "'label' is missing", options={"labels": True})


DOCUMENTS = "\n a \nb\nc\n\n \nd\n\ne\nf\n"


def test_next_sentences_of_documents(write):
    examples = read_examples(write("a.txt", DOCUMENTS), positives="next_sentence")
    assert (examples.columns, examples.blank, examples.labels) == ((["a", "b", "e"], ["b", "c", "f"]), 0, None)


def test_next_3_sentences_are_drawn_with_the_seed(write):
    path = write("a.txt", "\n\n".join("\n".join(f"{document} {n}" for n in range(9)) for document in "abcdefgh"))

    def read(seed):
        return read_examples(path, positives="next_3_sentences", seed=seed).columns

    assert read(0) == read(0) != read(1)
    anchors, positives = ([(text[0], int(text[2])) for text in column] for column in read(0))
    assert anchors == [(document, n) for document in "abcdefgh" for n in range(8)]
    assert all(a[0] == p[0] and 1 <= p[1] - a[1] <= 3 for a, p in zip(anchors, positives, strict=True))
    assert {p[1] - a[1] for a, p in zip(anchors, positives, strict=True)} == {1, 2, 3}


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.txt", "a\nb\n", ["a.txt", "shuffled", "a blank line between", "data.positives=next_sentence"]),
        ("a.txt", "\n\na\nb\n\n", ["a.txt", "shuffled"]),
        ("a.txt", "a\n\nb\n\nc\n", ["a.txt", "no document has two sentences", "data.positives=next_sentence"]),
        ("a.txt", "\n\n", ["a.txt", "holds no sentences"]),
        ("a.csv", "sent0\na\n\nb\n", ["a.csv", "data.positives=next_sentence", ".txt"]),
    ],
)
def test_next_sentences_of_what_has_none_are_refused(write, name, content, parts):
    refused(write(name, content), *parts, options={"positives": "next_sentence"})


def test_next_sentences_of_other_sources_are_refused(write, tmp_path):
    options = {"positives": "next_3_sentences"}
    for source in ("hf:wiki.txt", "tfds:wiki"):
        refused(source, source, "data.positives=next_3_sentences", ".txt", options=options)
    refused(str(tmp_path / "none.txt"), "no such file", options=options)
    refused(write("a.txt", DOCUMENTS), "objective.softmax_nli", options=options | {"labels": True})
    refused(write("a.txt", DOCUMENTS), "'text'", "data.columns.anchor", options=options, anchor="text")


def test_the_real_wikipedia_sample_is_known_to_be_shuffled(senteval):
    path = senteval.parent / "wiki_sample.txt"
    refused(str(path), str(path), "shuffled", options={"positives": "next_sentence"})


def test_a_subsample_is_drawn_with_the_seed_and_keeps_its_order(write):
    rows = [(f"a{n:03}", f"b{n:03}", n % 3) for n in range(300)]
    path = write("a.csv", "sent0,sent1,label\n" + "".join(f"{a},{b},{label}\n" for a, b, label in rows))

    def read(count, seed=0):
        drawn = read_examples(path, labels=True, subsample=count, seed=seed)
        return list(zip(*drawn.columns, drawn.labels.tolist(), strict=True))

    assert read(0) == read(300) == rows
    assert len(read(50)) == len(set(read(50))) == 50
    assert read(50) == sorted(read(50)) and set(read(50)) <= set(rows)
    assert read(50) == read(50) != read(50, seed=1)
    assert read(50) != rows[:50]
    neutral = read_examples(path, positives="neutral", labels=True, subsample=40)
    assert set(neutral.labels) == {1} and len(neutral) == 40
    refused(path, "data.subsample=101", "a.csv", "100", options={"positives": "neutral", "subsample": 101})
    refused(path, "data.subsample=-1", options={"subsample": -1})


def test_every_subset_is_as_likely(write):
    path = write("a.txt", "".join(f"{n}\n" for n in range(10)))
    drawn = [int(text) for seed in range(300) for text in read_examples(path, subsample=3, seed=seed).columns[0]]
    assert np.abs(np.bincount(drawn, minlength=10) - 90).max() < 40  # 5 standard deviations


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """`single`: a dataset saved on disk; `splits`: the same as the split `dev` of two."""
    folder = tmp_path_factory.mktemp("hub")
    data = datasets.Dataset.from_dict({"label": [0, 1, 2], "sentence": ["a", None, "c"], "x": [0] * 3, "y": [0] * 3})
    data.save_to_disk(folder / "single")
    train = data.map(lambda row: {"sentence": f"train {row['label']}"})
    datasets.DatasetDict({"train": train, "dev": data}).save_to_disk(folder / "splits")
    return folder


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("single", (["a", "c"],)),
        ("splits", (["train 0", "train 1", "train 2"],)),
        ("splits:dev", (["a", "c"],)),
        ("splits::dev", (["a", "c"],)),
    ],
)
def test_a_hub_dataset_saved_on_disk_is_read(hub, rest, expected):
    examples = read_examples(f"hf:{hub}/{rest}")
    assert (examples.columns, examples.blank) == (expected, 3 - len(expected[0]))


@pytest.mark.parametrize(
    ("rest", "parts"),
    [("splits:nosuch", ["no split 'nosuch'", "train, dev"]), ("missing", ["could not be loaded"])],
)
def test_a_hub_dataset_that_cannot_be_loaded_is_named(hub, rest, parts):
    refused(f"hf:{hub}/{rest}", f"hf:{hub}/{rest}", *parts)


def test_a_number_in_a_hub_dataset_is_refused_by_row(hub):
    refused(f"hf:{hub}/single", f"hf:{hub}/single: row 1", "the field 'label' holds 0", anchor="label")


def test_numbers_of_a_hub_dataset_are_labels(tmp_path):
    features = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
    features["label"] = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    pairs = {"premise": list("abc"), "hypothesis": list("def"), "label": [2, -1, 1]}  # as Hugging Face's snli
    datasets.Dataset.from_dict(pairs, datasets.Features(features)).save_to_disk(tmp_path / "snli")
    examples = read_examples(f"hf:{tmp_path}/snli", labels=True)
    assert (examples.columns, examples.labels.tolist(), examples.unlabelled) == ((["a", "c"], ["d", "f"]), [2, 1], 1)


def test_a_hub_dataset_that_is_not_cached_is_refused_offline():
    refused("hf:no-one/no-such-dataset", "hf:no-one/no-such-dataset", "could not be loaded")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A TensorFlow dataset `tiny_sentences` as ArrayRecord files, written without TensorFlow."""
    import tensorflow_datasets as tfds

    class TinySentences(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            fields = {name: tfds.features.Text() for name in ("positive", "anchor")} | {"label": np.int64}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(fields))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(5), "test": self._generate_examples(1)}

        def _generate_examples(self, count):
            for number in range(count):
                yield number, {"anchor": f"{number} é", "positive": "" if number == 3 else "p", "label": number % 3}

    folder = tmp_path_factory.mktemp("tfds")
    TinySentences(data_dir=folder, file_format="array_record").download_and_prepare()
    tfds.core.add_data_dir(folder)


def test_a_tensorflow_dataset_is_read_without_tensorflow(prepared):
    examples = read_examples("tfds:tiny_sentences", {"anchor": "anchor", "positive": "positive"})
    assert sorted(examples.columns[0]) == ["0 é", "1 é", "2 é", "4 é"]
    assert (examples.columns[1], examples.blank) == (["p"] * 4, 1)
    assert "tensorflow" not in sys.modules


def test_the_order_of_a_tensorflow_dataset_s_columns_means_nothing(monkeypatch):
    for names in (["hypothesis", "premise"], ["left", "label", "right"]):
        library = LIBRARIES["tfds:"]._replace(read=lambda specification, names=names: (names, iter([])))
        monkeypatch.setitem(LIBRARIES, "tfds:", library)
        refused("tfds:x", "tfds:x", "which columns", *names)


def test_numbers_of_a_tensorflow_dataset_are_labels(prepared):
    examples = read_examples("tfds:tiny_sentences", labels=True)
    assert sorted(zip(examples.columns[0], examples.labels.tolist(), strict=True)) == [
        ("0 é", 0),
        ("1 é", 1),
        ("2 é", 2),
        ("4 é", 1),
    ]


@pytest.mark.parametrize(("split", "count"), [("test", 1), ("train[:2]", 2), ("train[40%:]+test", 4)])
def test_a_split_of_a_tensorflow_dataset_is_read(prepared, split, count):
    assert len(read_examples(f"tfds:tiny_sentences:{split}", {"anchor": "anchor"})) == count


@pytest.mark.parametrize(
    ("rest", "columns", "parts"),
    [
        ("tiny_sentences:nosuch", {}, ["could not be loaded", "nosuch"]),
        ("no_such_dataset", {}, ["could not be loaded", "not found"]),
        ("tiny_sentences", {"anchor": "label"}, ["row 1", "is no text", "data.columns"]),
        ("tiny_sentences", {"anchor": "txt"}, ["'txt'", "data.columns.anchor"]),
    ],
)
def test_a_bad_tensorflow_dataset_is_refused_by_name(prepared, rest, columns, parts):
    refused(f"tfds:{rest}", f"tfds:{rest}", *parts, **columns)


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        ("sent0,sent1,score", 2),  # what is left over is no hard negative
        ("id,text", 1),
        ("text,topic", 1),
        ("question,answer", 2),  # no usual name: by order
        ("a,b,c", 3),
    ],
)
def test_usual_names_go_before_the_order(tmp_path, header, roles):
    (tmp_path / "a.csv").write_text(f"{header}\n" + ",".join(header.split(",")) + "\n")
    columns = read_examples(str(tmp_path / "a.csv")).columns
    names = [name for name in header.split(",") if name not in ("score", "id", "topic")]
    assert columns == tuple([name] for name in names[:roles])


def test_blank_lines_before_a_header_and_fields_that_nobody_reads(tmp_path):
    (tmp_path / "a.csv").write_text("\n\nsent0,sent1\na,b\n")
    assert read_examples(str(tmp_path / "a.csv")).columns == (["a"], ["b"])
    (tmp_path / "a.jsonl").write_text('{"text": "a", "note": "n"}\n{"text": "b"}\n')
    assert read_examples(str(tmp_path / "a.jsonl")).columns == (["a", "b"],)
    refused(str(tmp_path / "a.jsonl"), "line 2: the field 'note' is missing", anchor="note")
    (tmp_path / "b.jsonl").write_text('{"text": "\\ud800"}\n')
    refused(str(tmp_path / "b.jsonl"), "line 1", "surrogate")
