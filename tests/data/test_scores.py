import json
import warnings
from decimal import Decimal

import numpy as np
import pandas
import pytest
from support.data import raises, refused

from simcse_jax.data.examples import read_examples
from simcse_jax.data.scores import Scores, parse_score

SCORES = Scores("objective.cosent")
UNIT = Scores("objective.cosine_mse", (0.0, 1.0))
FIVE = Scores("objective.cosent", (0.0, 5.0), stated=True)
GRADED = "score,sentence2,sentence1,genre,id\n3.2,b,a,x,1\n,d,c,x,2\n0,,e,x,3\n5,h,g,x,4\n"


def test_a_score_is_a_number_or_its_text_goes_with_its_pair_and_wrong_ones_are_refused(write, write_parquet):
    values = ["3.2", " -1 ", 2, np.float32(0.5), "1e-3", Decimal("2.5"), "1e30", "-3,25", True, "False", "0,500"]
    expected = [3.2, -1.0, 2.0, 0.5, 0.001, 2.5, 1e30, -3.25, 1.0, 0.0, 0.5]
    assert [parse_score(value, "here") for value in values] == expected
    assert {parse_score(value, "here") for value in ("", " ", None, np.nan, Decimal("NaN"), pandas.NA)} == {None}
    for value in ("high", "1,000", "-12,500", "1,000,5", "1_5", "nan", "inf", "1e31", [3], 10**400, np.ones(2)):
        raises("here holds ", parse_score, value, "here")
    examples = read_examples(write("a.csv", GRADED), scores=SCORES)
    assert examples.columns == (["a", "g"], ["b", "h"]) and examples.scores.dtype == np.float32
    np.testing.assert_allclose(examples.scores, [3.2, 5])
    assert (examples.blank, examples.unscored) == (1, 1)
    np.testing.assert_allclose(read_examples(write("b.csv", GRADED), scores=FIVE).scores, [0.64, 1], rtol=1e-6)
    assert examples.take(np.array([1])).scores.tolist() == [5.0]
    unread = read_examples(write("c.csv", "left,right,score\na,b,3\n"))
    assert (unread.columns, unread.scores) == ((["a"], ["b"]), None)
    columns = {"anchor": "x", "positive": "y", "score": "z"}
    tsv = write("a.tsv", "x\ty\tz\na\tb\t0.5\n")
    jsonl = write("a.jsonl", '{"x": "c", "y": "d", "z": 0.25}\n{"x": "e", "y": "f", "z": null}\n')
    parquet = write_parquet(z=[1.0, None], x=["g", "i"], y=["h", "j"])
    examples = read_examples(f"{tsv},{jsonl},{parquet}", columns, scores=UNIT, subsample=3)
    assert examples.columns == (["a", "c", "g"], ["b", "d", "h"])
    assert examples.scores.tolist() == [0.5, 0.25, 1.0] and examples.unscored == 2
    path = write("a.csv", "sent0,sent1,label,score\na,b,0,4\nc,d,-,5\ne,f,2,\ng,h,1,1\n")
    examples = read_examples(path, labels=True, scores=SCORES)
    assert examples.columns[0] == ["a", "g"]
    assert (examples.labels.tolist(), examples.scores.tolist()) == ([0, 1], [4.0, 1.0])
    assert read_examples(path, positives="all", scores=SCORES).columns[0] == ["a", "c", "g"]  # reads no labels
    for content, scores, columns, parts in (
        ("sent0,sent1,label\na,b,0\n", SCORES, {}, ["a.csv: no scores", "objective.cosent", "data.columns.score"]),
        ("text,score\na,1\n", SCORES, {}, ["objective.cosent needs pairs"]),
        ("sent0,sent1,score\na,b,1\nc,d,much\n", SCORES, {}, ["a.csv: line 3: the field 'score' holds 'much'"]),
        ("sent0,sent1,score\na,b,1.5\n", UNIT, {}, ["line 2", "holds 1.5", "objective.cosine_mse", "within 0 to 1"]),
        ("sent0,sent1,score\na,b,6\n", FIVE, {}, ["line 2", "holds 6", "data.score_range=0,5"]),
        ("sent0,sent1,score\na,b,\n", SCORES, {}, ["holds no sentences", "1 rows without a score"]),
    ):
        refused(write("a.csv", content), *parts, options={"scores": scores}, **columns)
    path = write("a.jsonl", '{"sent0": "a", "sent1": "b", "score": 0}\n{"sent0": "c", "sent1": "d"}\n')
    refused(path, "line 2", "'score' is missing", options={"scores": SCORES})


TAUGHT = Scores("objective.margin_mse", of_candidates=True)
FLAG = {"query": "a", "pos": ["p", "q"], "neg": ["n", "m"], "pos_scores": [1, 0.5], "neg_scores": [0.25, 0.125]}
FEWER = {"query": "b", "pos": ["r"], "neg": ["o"], "pos_scores": [2], "neg_scores": [-1]}
MINED = {"anchor": "a", "positive": "p", "negative": ["n", "m"], "row": 0, "negative_rows": [4, 2]}
MINED |= {"positive_score": 1, "negative_scores": [0.5, 0.25]}
JUDGED = MINED | {"positive_judged": 3, "negative_judged": [2, 1]}


@pytest.fixture
def taught(write):
    def read(*rows, name="a.jsonl", **columns):
        return read_examples(write(name, "".join(json.dumps(row) + "\n" for row in rows)), columns, scores=TAUGHT)

    return read


def test_candidates_have_flagembedding_s_scores_the_judge_s_or_margins(taught, write_parquet, write):
    parquet = write_parquet(**{name: [FLAG[name], FEWER[name]] for name in FLAG})
    for found in (taught(FLAG, FEWER), read_examples(parquet, scores=TAUGHT)):
        assert found.columns == (["a", "a", "b"], ["p", "q", "r"], ["n", "n", "o"], ["m", "m", ""])
        assert found.scores.tolist() == [[1, 0.25, 0.125], [0.5, 0.25, 0.125], [2, -1, 0]]
        assert found.present.sum(axis=1).tolist() == [4, 4, 3]
    assert taught(MINED).scores.tolist() == [[1, 0.5, 0.25]]
    assert taught(JUDGED).scores.tolist() == [[3, 2, 1]]
    assert taught(JUDGED, score="negative_scores").scores.tolist() == [[1, 0.5, 0.25]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # says nothing of the other columns
        assert read_examples(write("b.jsonl", json.dumps(JUDGED))).columns == (["a"], ["p"], ["n"], ["m"])
    texts = {"query": "a", "positive": "p", "negative_1": "n", "negative_2": "m"}
    for name in ("label", "labels", "score", "scores"):
        found = taught(texts | {name: [1, 0.5, 0.25]}, texts | {name: [0.5, 0.75]})
        assert found.scores.tolist() == [[1, 0.5, 0.25], [0, -0.5, -0.75]]
    found = read_examples(write("a.csv", "query,positive,negative,label\na,p,n,0.5\n"), scores=TAUGHT)
    assert found.scores.tolist() == [[0, -0.5]]
    found = taught({"anchor": "a", "pos": ["p", "q"], "neg": "n", "kd": [[1, 2], [3]]}, score="kd")
    assert found.scores.tolist() == [[1, 2], [0, -3]]  # of each positive of a list
    first, second = write("a.jsonl", json.dumps(FEWER) + "\n"), write("b.jsonl", json.dumps(FLAG) + "\n")
    found = read_examples(f"{first},{second}", scores=TAUGHT)
    assert found.scores.tolist() == [[2, -1, 0], [1, 0.25, 0.125], [0.5, 0.25, 0.125]]
    assert found.take(np.array([0])).scores.tolist() == [[2, -1, 0]]
    for rows, columns, part in (
        ([FLAG | {"neg_scores": [1]}], {}, "line 1: the field 'neg_scores' has 1 scores for 2 texts"),
        ([FLAG, FLAG | {"neg_scores": None}], {}, "line 2: the field 'neg_scores' has 0 scores for 2 texts"),
        ([FLAG, FLAG | {"pos_scores": [1, None]}], {}, "line 2: the field 'pos_scores' has 0 scores for 1 texts"),
        ([FLAG, FLAG | {"neg_scores": [1, None]}], {}, "line 2: the field 'neg_scores' lacks score 2 of 2"),
        ([FLAG, {name: FEWER[name] for name in FLAG if name != "neg_scores"}], {}, "'neg_scores' is missing"),
        ([MINED | {"kd": [1, 2, 3, 4]}], {"score": "kd"}, "line 1: the field 'kd' has 4 scores"),
        ([MINED], {"score": "kd"}, "no column 'kd' (data.columns.score)"),
        ([{"anchor": "a", "positive": "p", "negative": "n"}], {}, "no scores of positives and hard negatives"),
    ):
        raises(part, taught, *rows, **columns)
