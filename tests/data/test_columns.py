import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data import refused

from simcse_jax.data.examples import read_examples

CATEGORIES = "left,register\n" + "".join(f"sentence {row},some news {row % 4}\n" for row in range(12))


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
        ("sent0,sent1,label", "a,p,0", (["a"], ["p"])),
        ("text,gold_label,x,y,z", "a,-,p,n,m", (["a"],)),
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


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("qid,left,right", "1,a,p", (["a"], ["p"])),
        ("_id,words,label", "x,a,0", (["a"],)),
        (",question,answer", "0,a,p", (["a"], ["p"])),  # pandas' to_csv, with its index
        ("pairID,left,right,other", "7,a,p,n", (["a"], ["p"], ["n"])),
    ],
)
def test_columns_that_number_the_rows_are_no_sentences(write, header, row, expected):
    assert read_examples(write("train.csv", f"{header}\n{row}\n")).columns == expected


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("number,left,right\n\n17,a,p\n", ["'number' holds numbers, e.g. 17;", "number, left, right"]),
        ("left,right,rating\na,p,-0.5\na,p,4.25e-1\n", ["'rating' holds numbers, e.g. -0.5;", "data.columns.anchor"]),
        ("q1,q2,is_duplicate\na,p,True\n", ["'is_duplicate' holds numbers, e.g. True;"]),
        ("left,right,at\na,p,2026-11-26\na,p,1.2.2026\n", ["'at' holds dates, e.g. 2026-11-26;"]),
        ("left,seen\na,2026-11-26T10:00:00Z\na,12:30\n", ["'seen' holds dates, e.g. 2026-11-26T10:00:00Z"]),
        ("left,from\na,https://example.org/a b\n,\na,www.example.org\n", []),
        ("left,from\na,https://example.org/a\na,www.example.org\n", ["'from' holds links, e.g. https://example"]),
        ("left,key\na,doc_17\na,7f/3a\n", ["'key' holds identifiers, e.g. doc_17;"]),
        (CATEGORIES, ["'register' holds 4 different values in 12 rows, e.g. some news 0"]),
        (CATEGORIES.replace("some news", "one of the lines out of the part"), []),  # as of NLI's premises
        ("positive,register\np,https://a\n", ["'register' holds links"]),  # the anchor as the one that is left
        ("一个男人在弹吉他。,有人在演奏音乐。\na,p\n", ["looks like a sentence"]),
        ("A man plays the guitar,Someone plays\na,p\n", ["'A man plays the guitar'", "must name the columns"]),
        ("Who?,Me.\na,p\n", ["'Who?'", "looks like a sentence"]),
    ],
)
def test_a_choice_by_order_that_was_hardly_meant_is_refused(write, content, parts):
    if not parts:
        assert read_examples(write("a.csv", content)).columns
        return
    refused(write("a.csv", content), "a.csv", *parts)
    columns = dict(zip(("anchor", "positive"), content.split("\n")[0].split(","), strict=False))
    assert read_examples(write("a.csv", content), columns).columns  # by name they are taken


def test_a_table_of_one_column_is_read_whatever_its_name(write):
    for name in ("category", "words"):
        assert read_examples(write("a.csv", name + "\n" + "news\n" * 40)).columns == (["news"] * 40,)


@pytest.mark.parametrize(
    ("lines", "columns", "late"),
    [
        (['{"anchor": "a", "positive": "p"}', '{"anchor": "b", "positive": "q", "negative": "n"}'], {}, "negative"),
        (['{"anchor": "a", "positive": "p"}', '{"anchor": "b", "positive": "q", "neg": ["n", "m"]}'], {}, "neg"),
        (['{"text": "a"}', '{"text": "b", "positive": "q"}'], {}, "positive"),
        (['{"x": "a", "y": "p"}', '{"x": "b", "y": "q", "z": "n"}'], {}, "z"),
        (['{"anchor": "a", "positive": "p"}', '{"anchor": "b", "positive": "q", "neg_1": "n"}'], {}, "neg_1"),
        (['{"text": "a"}', '{"text": "b", "note": "n"}'], {}, ""),
        (['{"text": "a"}', '{"text": "b", "negative": 0.3}'], {}, ""),  # no positive, so no negative is read
        (['{"anchor": "a", "positive": "p"}', '{"anchor": "b", "positive": "q", "negative": null}'], {}, ""),
        (['{"x": "a", "y": "p"}', '{"x": "b", "y": "q", "id": 7, "label": 0, "z": ""}'], {}, ""),
        (['{"text": "a"}', '{"text": "b", "positive": "q"}'], {"anchor": "text"}, ""),
        (['{"anchor": "a", "positive": "p", "neg": []}', '{"anchor": "b", "positive": "q", "neg": ["n"]}'], {}, ""),
    ],
)
def test_a_field_that_the_first_line_lacks_does_not_get_lost(write, lines, columns, late):
    path = write("a.jsonl", "\n".join(lines) + "\n")
    if late:
        refused(path, f"a.jsonl: line 2: has the field {late!r}, which the first line lacks", **columns)
    else:
        read_examples(path, columns)


def test_a_few_numbers_among_answers_are_texts(write):
    rows = "".join(f"q{row},{row if row % 2 else 'me'}\n" for row in (1969, 2, 3))
    assert read_examples(write("a.csv", f"question,answer\n{rows}")).columns[1] == ["1969", "me", "3"]


def test_numbers_in_a_parquet_file_s_text_are_found_too(tmp_path):
    table = pa.table({"q1": ["a", "b"], "id": [1, 2], "q2": ["p", "q"], "is_duplicate": ["1", "0"]})
    pq.write_table(table, tmp_path / "a.parquet")
    refused(str(tmp_path / "a.parquet"), "a.parquet: the field 'is_duplicate' holds numbers, e.g. 1; which columns")
    pq.write_table(table.drop_columns("is_duplicate"), tmp_path / "a.parquet")
    assert read_examples(str(tmp_path / "a.parquet")).columns == (["a", "b"], ["p", "q"])


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("id,sentence1,sentence2,label\n1,a,p,0\n", {}, "its column 'label' is not read, so every pair counts as"),
        ("left,right,score\na,p,0\n", {}, "its column 'score' is not read"),
        ("idx,words,label\n1,a,0\n", {}, ""),  # a sentence alone is no pair
        ("id,sentence1,sentence2,label\n1,a,p,0\n", {"positives": "all"}, ""),
        ("sent0,sent1,label\na,p,0\n", {}, "its column 'label' is not read"),
        ("premise,hypothesis,Label\na,p,neutral\n", {}, "its column 'Label' is not read"),
        ("sentence1,sentence2,Score\na,p,0.3\n", {}, "its column 'Score' is not read"),
        ("sent0,sent1,label\na,p,0\n", {"columns": {"anchor": "sent0", "positive": "sent1"}}, ""),
        ("anchor,pair\na,p\n", {}, "only its column 'anchor' is read, and not 'pair'; data.columns"),
        (
            "anchor,positive,hard_neg_1,negative\na,p,m,n\n",
            {},
            "only its columns 'anchor', 'positive', 'negative' are read, and not 'hard_neg_1'; data.columns.neg",
        ),
        ("anchor,positive,negative_01\na,p,n\n", {}, "columns 'anchor', 'positive' are read, and not 'negative_01'"),
        ("anchor,positive,Negatives\na,p,n\n", {}, "columns 'anchor', 'positive' are read, and not 'Negatives'"),
        ("text,url,title,by,at\na,u,t,b,c\n", {}, "is read, and not 'title', 'by', 'at'; data.columns.anchor"),
        ("id,text\n1,a\n", {}, ""),
        ("sent0, sent1, hard_neg\na,p,n\n", {}, ""),
    ],
)
def test_labels_and_scores_that_nothing_reads_are_told(write, content, options, said):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_examples(write("a.csv", content), **options)
    assert [said in str(warning.message) for warning in caught] == [True] * bool(said)


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("sent0, sent1, hard_neg", "abc"),
        ("negative,positive,query", "cba"),
        ("positive,question", "ba"),
        ("negative_1,negative_2,positive,query,id", "dcab"),
        ("premise,hypothesis,Label", "ab"),
        ("Score,sentence1,sentence2", "bc"),
        ("positive,title,query", "ca"),
        ("anchor,pos,neg", "abc"),
        ("neg_1,pos,query,neg_2", "cbad"),
        ("genre,sentence1,sentence2", "bc"),
        ("question,answer,category", "ab"),
        ("source,target", "ab"),
        ("target,id,source,lang", "ca"),
        ("lang,sentence_A,Sentence B,split", "bc"),
        ("url,left,date,right", "bd"),
        ("hypothesis,text,premise", "ca"),
        ("passage,query,negative", "bac"),
        ("sent1,sent2", "ab"),
        ("document,title,query", "ca"),
    ],
)
def test_names_count_more_than_the_order(write, header, columns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = ",".join("abcdef"[: header.count(",") + 1])
        read = read_examples(write("a.csv", f"{header}\n{row}\n"))
    assert "".join(column[0] for column in read.columns) == columns


@pytest.mark.parametrize(
    ("header", "parts"),
    [
        ("negative,query", ["has 'negative', but which column is the positive?", "set data.columns.anchor"]),
        ("anchor,good,neg", ["has 'neg', but which column is the positive? There are anchor, good, neg"]),
        ("anchor,negative", ["has 'negative', but which column is the positive?"]),
        ("positive,title,words", ["has 'positive', but which column is the anchor? There are positive, title, words"]),
        ("genre,url,lang", ["which columns to use? It has genre, url, lang; set data.columns.anchor"]),
        ("positive,id", ["has 'positive', but which column is the anchor?"]),
    ],
)
def test_a_role_without_those_before_it_is_refused(write, header, parts):
    row = ",".join("abc"[: header.count(",") + 1])
    refused(write("a.csv", f"{header}\n{row}\n"), *parts)


def test_labels_are_read_by_name_in_any_case(write):
    path = write("a.csv", "sent0,sent1,Label\na,p,entailment\nb,q,neutral\n")
    assert read_examples(path, positives="neutral").columns == (["b"], ["q"])
