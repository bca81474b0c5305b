import pytest
from support.data import refused

from simcse_jax.data.examples import read_examples


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("hard_neg,sent1,sent0", "n,p,a", (["a"], ["p"], ["n"])),
        ("positive,anchor", "p,a", (["a"], ["p"])),
        ("id,negative,text,positive", "1,n,a,p", (["a"], ["p"], ["n"])),
        ("id,label,source,text", "1,2,3,a", (["a"],)),
        ("left,right", "a,p", (["a"], ["p"])),
        ("x,y,z", "a,p,n", (["a"], ["p"], ["n"])),
        # Unused labels are not sentences, and neutral hypotheses not hard negatives.
        ("premise,hypothesis,label", "a,p,0", (["a"], ["p"])),
        ("gold_label,x,y,z", "-,a,p,n", (["a"], ["p"], ["n"])),
        ("sent0,sent1,hard_neg,neutral", "a,p,n,m", (["a"], ["p"], ["n"])),
        ("sent0,sent1,neutral", "a,p,m", (["a"], ["p"])),
    ],
)
def test_usual_names_count_in_any_order_other_names_by_the_order_of_at_most_three(write, header, row, expected):
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


def test_a_missing_mapped_column_is_named(write):
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


def test_a_label_column_does_not_change_the_others(write):
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


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        ("sent0,sent1,score", 2),  # the remaining column is not a hard negative
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
