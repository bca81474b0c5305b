import subprocess
import sys

import numpy as np
import pyarrow
import pytest

from simcse_jax.data.sentences import check_sentences
from simcse_jax.data.tables import only_column
from simcse_jax.encoding.arguments import embeddings_or_sentences
from simcse_jax.errors import UserError

TEXTS = ["A dog runs.", "Übung"]


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
        "import sys; from simcse_jax.data.tables import only_column; only_column({'text': ['a']}); "
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
