import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from support.later import later

from simcse_jax.data import in_memory
from simcse_jax.data.examples import read_examples
from simcse_jax.data.in_memory import write_examples
from simcse_jax.errors import UserError
from simcse_jax.evaluation.sts import read_graded_pairs

datasets = later("datasets")
PAIRS = [("a cat", "the cat"), ("a dog", "the dog"), ("a cow", "the cow")]
COLUMNS = {"query": ["a cat", "a dog", "a cow"], "answer": ["the cat", "the dog", "the cow"], "id": [1, 2, 3]}


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        (["one", "two"], (["one", "two"],)),
        ((sentence for sentence in ("one", "two")), (["one", "two"],)),
        (np.array(["one", "two"]), (["one", "two"],)),
        (pandas.Series(["one", "two"], name="text"), (["one", "two"],)),
        (PAIRS, tuple(map(list, zip(*PAIRS, strict=True)))),
        ([[*pair, "no"] for pair in PAIRS], (*map(list, zip(*PAIRS, strict=True)), ["no"] * 3)),
        ([{"question": "a", "answer": "b"}, {"question": "c", "answer": "d"}], (["a", "c"], ["b", "d"])),
        ([{"query": "a", "pos": ["b", "c"], "neg": ["d"]}], (["a", "a"], ["b", "c"], ["d", "d"])),
        (COLUMNS, (COLUMNS["query"], COLUMNS["answer"])),
        (pandas.DataFrame(COLUMNS), (COLUMNS["query"], COLUMNS["answer"])),
        (pandas.DataFrame(COLUMNS).astype({"query": "category"}), (COLUMNS["query"], COLUMNS["answer"])),
        (pyarrow.table(COLUMNS), (COLUMNS["query"], COLUMNS["answer"])),
        (lambda: datasets.Dataset.from_dict(COLUMNS).select([0, 2]), (["a cat", "a cow"], ["the cat", "the cow"])),
    ],
)
def test_examples_are_read_as_those_of_a_file(given, columns, tmp_path):
    write_examples(given() if callable(given) else given, tmp_path / "new" / "data.parquet", "data")
    found = read_examples(str(tmp_path / "new" / "data.parquet"))
    assert tuple(map(list, found.columns)) == columns


def test_pairs_with_scores_are_what_a_run_is_scored_on(tmp_path):
    write_examples([("a", "b", 1), ("c", "d", 0.5), ("e", "f", 3)], tmp_path / "eval.parquet", "eval")
    found = read_graded_pairs(tmp_path / "eval.parquet")
    assert (found.first, found.second, found.gold.tolist()) == (["a", "c", "e"], ["b", "d", "f"], [1, 0.5, 3])


def test_an_iterator_is_written_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(in_memory, "ROWS", 10)
    drawn = []

    def rows():
        for number in range(35):
            drawn.append(number)
            yield f"sentence {number}"

    write_examples(rows(), tmp_path / "data.parquet", "data")
    file = pyarrow.parquet.ParquetFile(tmp_path / "data.parquet")
    assert file.num_row_groups == 4 and file.metadata.num_rows == 35 == len(drawn)
    write_examples(rows(), tmp_path / "data.parquet", "data", used=True)  # the same again
    with pytest.raises(UserError, match=r"data.parquet: this workdir has a run on other data; choose another workdir"):
        write_examples(list(rows())[:34], tmp_path / "data.parquet", "data", used=True)
    with pytest.raises(UserError, match="this workdir has a run on other data"):
        write_examples([*rows(), "one more"], tmp_path / "data.parquet", "data", used=True)
    write_examples(["others"], tmp_path / "data.parquet", "data")  # no run has read it
    assert pyarrow.parquet.read_table(tmp_path / "data.parquet").num_rows == 1
    pyarrow.parquet.write_table(pyarrow.table({"a": ["mine"]}), tmp_path / "mine.parquet")
    with pytest.raises(UserError, match=r"mine\.parquet: exists and was not written for a run"):
        write_examples(["others"], tmp_path / "mine.parquet", "data")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "data: is empty"),
        (pandas.DataFrame({"text": []}), "data: is empty"),
        (pandas.DataFrame(), "data: a table without columns"),
        ([1, 2], r"data: item 0 is 1, not a sentence, a pair, a triplet, or a pair with a score"),
        (np.ones((2, 3)), r"data: item 0 is array\(\[1., 1., 1.\]\), not a sentence"),
        (["a", None], "data: item 1 is None, not a sentence"),
        ([("a", "b"), ("a",)], r"data: item 1 is \('a',\), item 0 \('a', 'b'\)"),
        ([("a", "b"), ("a", "b", 1.0)], "data: item 1 is"),
        ([("a", True)], "data: item 0 is"),
        (["a\ud800"], "data: item 0: holds a broken character"),
        (pandas.DataFrame({"x": [1.5], "y": [2]}), "data: has the columns x, y, none of them text"),
        (pandas.DataFrame([["a", "b"]]), "data: a table with a column 0; give its columns names"),
        ({"a", "b"}, "data: a set has no order; give a list"),
        (pandas.DataFrame([["a", "b"]], columns=["x", "x"]), "data: a table with two columns of one name"),
        ([{"a": "x", "b": 2**64}], "data: cannot be a table"),
        ("text", "data 'text': give a file's name"),
        (7, "data 7: give a file's name"),
        ({"a": ["x", 1]}, "data: cannot be a table"),
    ],
)
def test_what_is_no_data_is_refused_and_nothing_is_written(given, message, tmp_path):
    with pytest.raises(UserError, match=message):
        write_examples(given, tmp_path / "data.parquet", "data")
    assert not list(tmp_path.iterdir())


def test_dictionaries_have_the_fields_of_the_first_one(tmp_path, monkeypatch):
    monkeypatch.setattr(in_memory, "ROWS", 2)
    rows = [{"anchor": "a", "positive": "b", "negative": None}] * 3
    late = [{"negative": "d", "positive": "c", "anchor": "a"}, {"anchor": "a", "positive": "e"}]
    write_examples([*rows, *late], tmp_path / "data.parquet", "data")
    found = pyarrow.parquet.read_table(tmp_path / "data.parquet").to_pydict()
    assert found == {"anchor": ["a"] * 5, "positive": [*"bbbce"], "negative": [None, None, None, "d", None]}
    with pytest.raises(UserError, match="data: item 1 has 'negative', which item 0 lacks"):
        write_examples([late[1], late[0]], tmp_path / "other.parquet", "data")
