from decimal import Decimal

import numpy as np
import pytest
from support.data import refused

from simcse_jax.data.examples import read_examples
from simcse_jax.data.scores import Scores, parse_score, read_range

SCORES = Scores("objective.cosent")
UNIT = Scores("objective.cosine_mse", (0.0, 1.0))
FIVE = Scores("objective.cosent", (0.0, 5.0), stated=True)


@pytest.mark.parametrize(
    ("value", "score"),
    [
        ("3.2", 3.2),
        (" -1 ", -1.0),
        (2, 2.0),
        (np.float32(0.5), 0.5),
        ("1e-3", 0.001),
        (Decimal("2.5"), 2.5),
        ("", None),
        (" ", None),
    ],
)
def test_a_score_is_a_number_or_its_text(value, score):
    assert parse_score(value, "here") == score and parse_score(None, "here") is None


@pytest.mark.parametrize(
    "value", ["high", "3,2", "1_5", Decimal("NaN"), "nan", "inf", "1e31", True, [3], float("nan"), 10**400]
)
def test_anything_else_is_none(value, write):
    with pytest.raises(Exception, match=r"^here holds .*, which is not a score; write a number, or leave it empty"):
        parse_score(value, "here")


def test_a_range_is_its_lowest_and_highest_score():
    assert read_range(()) is None and read_range(("-1", "1")) == (-1.0, 1.0)
    for parts in (("1",), ("0", "1", "2"), ("5", "0"), ("1", "1"), ("a", "b"), ("0", "nan"), ("0", "inf")):
        with pytest.raises(ValueError):
            read_range(parts)


GRADED = "score,sentence2,sentence1,genre,id\n3.2,b,a,x,1\n,d,c,x,2\n0,,e,x,3\n5,h,g,x,4\n"


def test_scores_go_with_their_pairs_and_pairs_without_one_are_left_out(write):
    examples = read_examples(write("a.csv", GRADED), scores=SCORES)
    assert examples.columns == (["a", "g"], ["b", "h"]) and examples.scores.dtype == np.float32
    np.testing.assert_allclose(examples.scores, [3.2, 5])
    assert (examples.blank, examples.unscored) == (1, 1)
    np.testing.assert_allclose(read_examples(write("b.csv", GRADED), scores=FIVE).scores, [0.64, 1], rtol=1e-6)
    assert examples.take(np.array([1])).scores.tolist() == [5.0]
    assert read_examples(write("c.csv", "sent0,sent1,score\na,b,3\n")).scores is None


def test_they_come_from_every_kind_of_source(write, write_parquet):
    columns = {"anchor": "x", "positive": "y", "score": "z"}
    tsv = write("a.tsv", "x\ty\tz\na\tb\t0.5\n")
    jsonl = write("a.jsonl", '{"x": "c", "y": "d", "z": 0.25}\n{"x": "e", "y": "f", "z": null}\n')
    parquet = write_parquet(z=[1.0, None], x=["g", "i"], y=["h", "j"])
    examples = read_examples(f"{tsv},{jsonl},{parquet}", columns, scores=UNIT, subsample=3)
    assert examples.columns == (["a", "c", "g"], ["b", "d", "h"])
    assert examples.scores.tolist() == [0.5, 0.25, 1.0] and examples.unscored == 2


def test_labels_and_scores_go_together_and_all_pairs_may_be_positives(write):
    path = write("a.csv", "sent0,sent1,label,score\na,b,0,4\nc,d,-,5\ne,f,2,\ng,h,1,1\n")
    examples = read_examples(path, labels=True, scores=SCORES)
    assert examples.columns[0] == ["a", "g"]
    assert (examples.labels.tolist(), examples.scores.tolist()) == ([0, 1], [4.0, 1.0])
    assert read_examples(path, positives="all", scores=SCORES).columns[0] == ["a", "c", "g"]  # reads no labels


@pytest.mark.parametrize(
    ("content", "scores", "columns", "parts"),
    [
        ("sent0,sent1\na,b\n", SCORES, {}, ["no scores, but objective.cosent needs them", "set data.columns.score"]),
        ("sent0,sent1,label\na,b,0\n", SCORES, {}, ["no scores", "sent0, sent1, label"]),
        ("sent0,sent1\na,b\n", SCORES, {"score": "z"}, ["no column 'z' (data.columns.score)"]),
        ("sent0,sent1,score,score\na,b,1,1\n", SCORES, {}, ["2 columns are called 'score'"]),
        ("text,score\na,1\n", SCORES, {}, ["one column of sentences, but objective.cosent needs pairs"]),
        ("sent0,sent1,score\na,b,1\nc,d,much\n", SCORES, {}, ["a.csv: line 3: the field 'score' holds 'much'"]),
        ("sent0,sent1,score\na,b,1.5\n", UNIT, {}, ["line 2", "holds 1.5, but objective.cosine_mse needs", "0 to 1"]),
        ("sent0,sent1,score\na,b,6\n", FIVE, {}, ["line 2", "holds 6", "outside of data.score_range=0,5"]),
        ("sent0,sent1,score\na,b,\n", SCORES, {}, ["holds no sentences, only 1 rows without a score"]),
    ],
)
def test_missing_and_wrong_scores_are_refused(write, content, scores, columns, parts):
    refused(write("a.csv", content), "a.csv", *parts, options={"scores": scores}, **columns)


def test_a_record_without_a_score_is_refused_by_line(write):
    path = write("a.jsonl", '{"sent0": "a", "sent1": "b", "score": 0}\n{"sent0": "c", "sent1": "d"}\n')
    refused(path, "line 2", "'score' is missing", options={"scores": SCORES})


def test_a_column_of_scores_is_never_one_of_sentences(write):
    assert read_examples(write("a.csv", "left,right,score\na,b,3\n")).columns == (["a"], ["b"])
