import numpy as np
import pandas
import pyarrow.parquet
from support.data import raises
from support.later import later

from simcse_jax.data import in_memory
from simcse_jax.data.examples import read_examples
from simcse_jax.data.in_memory import write_examples
from simcse_jax.evaluation.sts import read_graded_pairs

datasets, polars = map(later, ("datasets", "polars"))
PAIRS = [("a cat", "the cat"), ("a dog", "the dog"), ("a cow", "the cow")]
COLUMNS = {"query": ["a cat", "a dog", "a cow"], "answer": ["the cat", "the dog", "the cow"], "id": [1, 2, 3]}
READ = (COLUMNS["query"], COLUMNS["answer"])
PAIR = ("anchor", "positive")
TEXTS = ["one", "two"]


def test_examples_are_read_as_those_of_a_file_and_what_is_no_data_is_refused(tmp_path):
    for given, message in (
        ([], "data: is empty"),
        (pandas.DataFrame({"text": []}), "data: is empty"),
        (pandas.DataFrame(), "data: is empty"),
        (["a", None], "data: item 1 is None"),
        ([("a", "b"), ("a",)], "data: item 1 is ('a',)"),
        ([("a", "b"), ("a", "b", 1.0)], "data: item 1 is ('a', 'b', 1.0)"),
        ([("a", "b", "c"), ("a", "b", 1.0)], "data: item 1 is ('a', 'b', 1.0)"),
        ([("a", "b", 1.0), ("a", "b", [])], "data: item 1: the third field"),
        ([("a", "b", "c", "d")], "data: item 0 is"),
        ([("a" * 99, "b", None)], "data: item 0 is ('aaaaaaaaaaaa...aaaaaaaaaaaaa', 'b', None)"),
        ([("a", "b", np.ones(2))], "data: item 0 is"),
        ([("first", "second", "score"), *[("a", "b", "0.5")] * 2], "data: item 0: the third field"),  # `csv.reader`'s
        ([*[("a", "b", "85%")] * 2, ("a", "b", "n/a")], "data: item 0: the third field"),
        ([*[("a", "b", "neutral")] * 2, ("a", "b", "maybe")], "data: item 2: the third field"),
        (pyarrow.table(COLUMNS).to_batches(), "data: item 0 is"),
        ({"train": pandas.DataFrame(COLUMNS)}, "data: a dictionary of tables (train)"),
        (datasets.DatasetDict(train=datasets.Dataset.from_dict(COLUMNS)), "data: a dictionary of tables (train)"),
        (["a\ud800"], "data: item 0: holds a broken character"),
        (pandas.DataFrame([["a", "b"]], columns=["x", "x"]), "data: cannot be a table: Duplicate column names"),
        (set(TEXTS[:1]), "data {'one'}: give a file's name, a list"),
        ([{"a": "x", "b": 2**64}], "data: cannot be a table"),
        ("text", "data 'text': give a file's name"),
    ):
        raises(message, write_examples, given, tmp_path / "data.parquet", "data")
        assert not list(tmp_path.iterdir())
    for given, columns in (
        (TEXTS, (TEXTS,)),
        ((sentence for sentence in ("one", "two")), (TEXTS,)),
        (np.array(TEXTS), (TEXTS,)),
        (pyarrow.array(TEXTS, pyarrow.string_view()), (TEXTS,)),
        (pandas.Series(TEXTS, name="text"), (TEXTS,)),
        (PAIRS, READ),
        ([[*pair, "no"] for pair in PAIRS], (*READ, ["no"] * 3)),
        ([{"question": "a", "answer": "b"}, {"question": "c", "answer": "d"}], (["a", "c"], ["b", "d"])),
        ([{"query": "a", "pos": ["b", "c"], "neg": ["d"]}], (["a", "a"], ["b", "c"], ["d", "d"])),
        (COLUMNS, READ),
        (pandas.DataFrame(COLUMNS).astype({"query": "category"}), READ),
        (pyarrow.table(COLUMNS), READ),
        (pyarrow.table(COLUMNS).to_reader(), READ),  # as DuckDB has it
        (pyarrow.table({name: pyarrow.array(READ[at], pyarrow.string_view()) for at, name in enumerate(PAIR)}), READ),
        (lambda: polars.DataFrame(COLUMNS).with_columns(kind=polars.lit("a").cast(polars.Categorical)), READ),
        (lambda: datasets.Dataset.from_dict(COLUMNS).select([0, 2]), (["a cat", "a cow"], ["the cat", "the cow"])),
    ):
        write_examples(given() if callable(given) else given, tmp_path / "new" / "data.parquet", "data")
        found = read_examples(str(tmp_path / "new" / "data.parquet"))
        assert tuple(map(list, found.columns)) == columns
    write_examples([("a", "b", 1), ("c", "d", 0.5), ("e", "f", 3)], tmp_path / "eval.parquet", "eval")
    found = read_graded_pairs(tmp_path / "eval.parquet")
    assert (found.first, found.second, found.gold.tolist()) == (["a", "c", "e"], ["b", "d", "f"], [1, 0.5, 3])


def test_iterators_are_written_in_pieces_and_dictionaries_have_the_first_one_s_fields(tmp_path, monkeypatch):
    monkeypatch.setattr(in_memory, "ROWS", 10)
    rows, path, drawn = [f"sentence {number}" for number in range(35)], tmp_path / "data.parquet", []
    write_examples((drawn.append(row) or row for row in rows), path, "data")
    file = pyarrow.parquet.ParquetFile(path)
    assert file.num_row_groups == 4 and file.metadata.num_rows == 35 and drawn == rows
    write_examples(iter(rows), path, "data", used=True)  # the same again
    for others in (rows[:34], [*rows, "one more"], [*rows[:34], "another"]):
        raises("data.parquet: this workdir has a run on other data", write_examples, others, path, "data", used=True)
    write_examples(["others"], path, "data")  # no run has read it
    assert pyarrow.parquet.read_table(path).num_rows == 1
    pyarrow.parquet.write_table(pyarrow.table({"a": ["mine"]}), tmp_path / "mine.parquet")
    raises("mine.parquet: exists", write_examples, ["others"], tmp_path / "mine.parquet", "data")
    table = pyarrow.table({"text": rows})
    for size in (1, 7, 35):  # of the stream's batches
        write_examples(table.to_reader(size), tmp_path / "stream.parquet", "data", used=size > 1)
    monkeypatch.setattr(in_memory, "ROWS", 2)
    rows = [{"anchor": "a", "positive": "b", "negative": None}] * 3
    late = [{"negative": "d", "positive": "c", "anchor": "a"}, {"anchor": "a", "positive": "e"}]
    write_examples([*rows, *late], tmp_path / "data.parquet", "data")
    found = pyarrow.parquet.read_table(tmp_path / "data.parquet").to_pydict()
    assert found == {"anchor": ["a"] * 5, "positive": [*"bbbce"], "negative": [None, None, None, "d", None]}
    raises("data: item 1 has 'negative'", write_examples, late[::-1], tmp_path / "other.parquet", "data")


def test_third_items_are_scores_or_labels_if_all_of_them_are_and_nan_is_a_pair_without_a_score(tmp_path):
    path = tmp_path / "data.parquet"
    for thirds, name, written in (
        ([1, np.float32(0.5), float("nan")], "score", [1.0, 0.5, None]),
        (["0.45", " 1 ", ""], "score", [0.45, 1.0, None]),  # as `csv.reader` has them
        ([pandas.NA, np.True_, 0], "score", [None, 1.0, 0.0]),
        (["Entailment", "contradiction", "-"], "label", ["entailment", "contradiction", None]),
        (["entailment", "neutral", None], "label", ["entailment", "neutral", None]),
        (["12/5", "12/7", "12/9"], "negative", ["12/5", "12/7", "12/9"]),
        (["0.45", "entailment", "a text"], "negative", ["0.45", "entailment", "a text"]),
        (["1984", "no", ""], "negative", ["1984", "no", ""]),
        (["", "", ""], "negative", ["", "", ""]),
    ):
        write_examples([(*pair, third) for pair, third in zip(PAIRS, thirds, strict=True)], path, "data")
        table = pyarrow.parquet.read_table(path)
        assert (table.schema.names[2], table.column(2).to_pylist()) == (name, written)
    write_examples([("2 + 2", "4", "5"), ("1 + 1", "2", "3")], path, "data")
    assert pyarrow.parquet.read_table(path)["negative"].to_pylist() == ["5", "3"]
    columns = {"sentence1": TEXTS * 2, "sentence2": TEXTS * 2, "score": [0.5, float("nan"), 1.0, None]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for table in (columns, pandas.DataFrame(columns), pyarrow.table(columns), rows, [(*row.values(),) for row in rows]):
        write_examples(table, path, "eval")
        write_examples(table, path, "eval", used=True)  # NaN equals NaN here
        assert read_graded_pairs(path).gold.tolist() == [0.5, 1.0]
    pyarrow.parquet.write_table(pyarrow.table(columns), path)  # with NaN
    assert read_graded_pairs(path).gold.tolist() == [0.5, 1.0]


def test_second_items_that_are_whole_numbers_are_classes(tmp_path):
    path = tmp_path / "data.parquet"
    write_examples([("a cat", 1), ("a dog", 0), ("a cow", None), ("a cat", np.int64(1))], path, "data")
    examples = read_examples(str(path), classes=True)
    assert (examples.columns, examples.labels.tolist(), examples.unlabelled) == (
        (["a cat", "a dog", "a cat"],),
        [0, 1, 0],
        1,
    )
    raises("data: item 1 is (1, 'a dog')", write_examples, [("a cat", 1), (1, "a dog")], path, "data")
