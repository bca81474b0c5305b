import json

import numpy as np
from support.data import refused

from simcse_jax.data.examples import read_examples
from simcse_jax.data.scores import Scores

ROWS = [["n", "m", "o"], ["k"], []]
SCORES = Scores("objective.cosent")
LISTED = [
    {"query": "a", "pos": ["p", "q"], "neg": ["n", "m"], "pos_scores": [1, 0.5], "neg_scores": [0.1, 0.2]},
    {"query": "b", "pos": ["r"], "neg": [], "pos_scores": [0.25], "neg_scores": [], "prompt": "Find it: "},
]


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def jsonl(rows, name="negative"):
    return lines(*(dict(sent0=f"a{at}", sent1=f"p{at}") | {name: row} for at, row in enumerate(rows)))


def same(examples, rows=ROWS):
    assert [examples.columns[0][0], examples.columns[1][1]] == ["a0", "p1"]
    width = max(map(len, rows))
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    assert [list(row) for row in zip(*examples.columns[2:], strict=True)] == padded
    np.testing.assert_array_equal(examples.present, [[at < 2 + len(row) for at in range(2 + width)] for row in rows])


def test_lists_hold_several_negatives_or_positives_and_rows_may_have_fewer(write, write_parquet):
    for name in ("negative", "hard_neg", "neg"):
        found = read_examples(write("a.jsonl", jsonl(ROWS, name)))
        same(found)
        assert found.kinds == "3 rows of 2 to 5 sentences"
        header = f"sent1,{name}_2,{name}_1,sent0,{name}_3"  # in any order
        same(read_examples(write("a.csv", f"{header}\np0,m,n,a0,o\np1,,k,a1,\np2,,,a2, \n")))
    same(read_examples(write("a.jsonl", jsonl([*ROWS[:2], None])), {"negative": ""}))  # null: none
    same(read_examples(write_parquet(sent0=["a0", "a1", "a2"], sent1=["p0", "p1", "p2"], negative=[*ROWS[:2], None])))
    same(read_examples(write("a.jsonl", jsonl([["n", " ", "m", "o"], "k", [""]]))))  # blank ones do not count
    same(read_examples(write("a.csv", "sent0,sent1,neg_1,neg_3,neg_5\na0,p0,n,m,o\na1,p1,,,k\na2,p2,,,\n")))
    mapped = {"anchor": "sent0", "positive": "sent1", "negative": "other"}
    same(read_examples(write("a.jsonl", jsonl(ROWS, "other")), mapped))
    table = "sent0,sent1,other_1,other_2,other_3\na0,p0,n,m,o\na1,p1,k,,\na2,p2,,,\n"
    same(read_examples(write("b.csv", table), mapped))
    full = read_examples(write("a.jsonl", jsonl([["n", "m"], ["o", "k"]])))
    assert (full.present, full.kinds) == (None, "2 pairs with 2 hard negatives")
    path = write("a.csv", "sent0,sent1,negative,negative_1\na,p,n,m\na,p,,m\n")
    refused(path, "'negative' and 'negative_1'", "data.columns.negative")
    one = read_examples(path, {"anchor": "sent0", "positive": "sent1", "negative": "negative"})
    assert (one.columns[2], one.blank) == (["n"], 1)  # a blank cell of a single column leaves the row out, as ever
    first, second = write("a.jsonl", jsonl(ROWS)), write("b.csv", "sent0,sent1,neg_1\na,p,q\n")
    same(read_examples(f"{first},{second}"), [*ROWS, ["q"]])
    columns = {"anchor": "sent0", "positive": "sent1", "negative": "neg", "neutral": "m"}
    found = read_examples(write("c.csv", "sent0,sent1,m,neg_1,neg_2\na0,p0,x,y,z\na1,p1,w,v,\n"), columns)
    assert found.columns[2:] == (["y", "v"], ["z", "w"], ["x", ""])
    refused(f"{first},{write('d.csv', 'sent0,sent1' + chr(10) + 'a,p' + chr(10))}", "has pairs", "data.mixed=True")
    path = write("a.csv", 'sent0,sent1,neg\na,p,[applause]\nb,q,"[1, 2]"\n')
    assert read_examples(path).columns[2] == ["[applause]", "[1, 2]"]
    assert read_examples(write("b.csv", "query,pos\na,[applause]\n")).columns[1] == ["[applause]"]
    for name, content, parts in (
        ("a.csv", 'sent0,sent1,neg\na,p,"[""b"", ""c""]"\n', ["line 2", "'neg' is a list written as text"]),
        ("a.csv", "query,pos\na,\"['p', 'q']\"\n", ["line 2: the field 'pos' is a list written as text"]),
        ("a.jsonl", jsonl(["n", ["m"]]), ["line 2", "holds ['m'], not text"]),
        ("a.jsonl", lines(LISTED[0], {"query": "b"}), ["line 2: the field 'pos' is missing"]),
    ):
        refused(write(name, content), *parts)
    columns = {name: [row[name] for row in LISTED] for name in LISTED[0]}
    for path in (write("a.jsonl", lines(*LISTED)), write_parquet(**columns)):
        examples = read_examples(path)
        assert examples.columns == (["a", "a", "b"], ["p", "q", "r"], ["n", "n", ""], ["m", "m", ""])
        assert examples.present.sum(1).tolist() == [4, 4, 2]
        graded = read_examples(path, scores=SCORES)
        assert (graded.columns, graded.scores.tolist()) == ((["a", "a", "b"], ["p", "q", "r"]), [1, 0.5, 0.25])
    rows = ({"anchor": "a", "pos": ["p"], "score": 3}, {"anchor": "b", "pos": [], "score": []})
    examples = read_examples(write("a.jsonl", lines(*rows)), scores=SCORES)
    assert (examples.columns, examples.blank, examples.scores.tolist()) == ((["a"], ["p"]), 1, [3])
    wrong = LISTED[1] | {"pos": ["p", "q"], "pos_scores": 1}
    said = "'pos_scores' has 1 values for 2 positives"
    refused(write("a.jsonl", lines(LISTED[0], wrong)), "line 2", said, options={"scores": SCORES})
