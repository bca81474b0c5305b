import json

import pytest
from support.data import refused

from simcse_jax.data.examples import read_examples
from simcse_jax.data.scores import Scores

ROWS = [
    {"query": "a", "pos": ["p", "q"], "neg": ["n", "m"], "pos_scores": [1, 0.5], "neg_scores": [0.1, 0.2]},
    {"query": "b", "pos": ["r"], "neg": [], "pos_scores": [0.25], "neg_scores": [], "prompt": "Find it: "},
]


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_each_positive_of_a_list_is_a_pair_with_all_negatives_of_its_row(write, write_parquet):
    columns = ROWS[0].keys()
    tables = write("a.jsonl", lines(*ROWS)), write_parquet(**{name: [row[name] for row in ROWS] for name in columns})
    for path in tables:
        examples = read_examples(path)
        assert examples.columns == (["a", "a", "b"], ["p", "q", "r"], ["n", "n", ""], ["m", "m", ""])
        assert examples.present.sum(1).tolist() == [4, 4, 2]
        graded = read_examples(path, scores=Scores("objective.cosent"))
        assert (graded.columns, graded.scores.tolist()) == ((["a", "a", "b"], ["p", "q", "r"]), [1, 0.5, 0.25])


def test_rows_without_a_positive_are_left_out_and_one_score_is_that_of_one(write):
    rows = ({"anchor": "a", "pos": ["p"], "score": 3}, {"anchor": "b", "pos": [], "score": []})
    examples = read_examples(write("a.jsonl", lines(*rows)), scores=Scores("objective.cosent"))
    assert (examples.columns, examples.blank, examples.scores.tolist()) == ((["a"], ["p"]), 1, [3])


@pytest.mark.parametrize(
    ("second", "parts"),
    [
        ({"pos": "p"}, ["line 2", "the field 'pos' is 'p', but that of the first row is a list"]),
        ({"pos": ["p", "q"], "pos_scores": 1}, ["line 2", "'pos_scores' has 1 values for 2 positives"]),
        ({"pos": [3]}, ["line 2", "the field 'pos' holds 3, not text"]),
        ({"pos": ["p", "q"], "pos_scores": [1]}, ["line 2", "'pos_scores' has 1 values for 2 positives"]),
    ],
)
def test_what_is_no_list_of_positives_is_refused(write, second, parts):
    path = write("a.jsonl", lines(ROWS[0], {**ROWS[1], **second}))
    refused(path, *parts, options={"scores": Scores("objective.cosent")})


def test_a_missing_list_and_one_that_is_written_as_text_are_refused(write):
    refused(write("a.jsonl", lines(ROWS[0], {"query": "b"})), "line 2: the field 'pos' is missing")
    text = "query,pos\na,\"['p', 'q']\"\n"
    refused(write("a.csv", text), "line 2: the field 'pos' is a list written as text")
    assert read_examples(write("b.csv", "query,pos\na,[applause]\n")).columns[1] == ["[applause]"]
