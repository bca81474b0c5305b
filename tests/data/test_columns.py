import json
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.data import refused

from simcse_jax.data.examples import read_examples

# A header, and its columns that are read: a is the first one. Labels that are not used are no sentences, neutral
# hypotheses no hard negatives; `,question,answer` is pandas' table with its index.
NAMES = """
hard_neg,sent1,sent0=cba; positive,anchor=ba; id,negative,text,positive=cdb; id,label,source,text=d; left,right=ab;
x,y,z=abc; sent0,sent1,label=ab; text,gold_label,x,y,z=a; sent0,sent1,hard_neg,neutral=abc; sent0,sent1,neutral=ab;
sent0,sent1,score=ab; id,text=b; text,topic=a; question,answer=ab; qid,left,right=bc; _id,words,label=b;
,question,answer=bc; pairID,left,right,other=bcd; sent0, sent1, hard_neg=abc; negative,positive,query=cba;
positive,question=ba; negative_1,negative_2,positive,query,id=dcab; premise,hypothesis,Label=ab;
Score,sentence1,sentence2=bc; positive,title,query=ca; anchor,pos,neg=abc; neg_1,pos,query,neg_2=cbad;
genre,sentence1,sentence2=bc; question,answer,category=ab; source,target=ab; target,id,source,lang=ca;
lang,sentence_A,Sentence B,split=bc; url,left,date,right=bd; hypothesis,text,premise=ca; passage,query,negative=bac;
sent1,sent2=ab; document,title,query=ca; Query,Positive,Negative=abc; Sent0,Sent1,Hard Neg=abc;
anchor,positive,Negatives=abc; sentence1,sentence2,hard_negative=abc; prompt,chosen,rejected=abc; response,prompt=ba;
paraphrase,source=ba; text,source,target=a; title,text,body=b; text,positive,title,abstract=ab; lemma,pos,sentence=c;
text,pos,label=a; id,source=b;
Nr.,left,right=bc; lfd. Nr.,left,right=bc; PairID,left,right=bc; Unnamed: 0,left,right,Unnamed: 3=bc; left,right,=ab;
left,right,human_score=ab; left,right,similarity (0-5)=ab; left,right,SimilarityScore=ab; question,gold=ab;
question,Gold (answer)=ab; text_en,text_id=ab; sample id,left,right=bc; Unnamed Entity,Search Index=ab;
sentence,sentence.1,sentence.2=a; qid1,qid2,question1,question2=cd
"""


def row_of(header: str) -> str:
    return ",".join("abcdef"[: header.count(",") + 1])


@pytest.mark.parametrize("case", [case.strip() for case in NAMES.split(";")])
@pytest.mark.filterwarnings("ignore")
def test_usual_names_count_in_any_order_and_spelling_others_by_the_order_of_at_most_three(write, case):
    header, _, columns = case.rpartition("=")
    read = read_examples(write("a.csv", f"{header}\n{row_of(header)}\n"))
    assert "".join(column[0] for column in read.columns) == columns


CATEGORIES = "left,register\n" + "".join(f"sentence {row},some news {row % 4}\n" for row in range(12))
CHINESE = "前提,假设\n" + "".join(f"一个男人在弹吉他唱歌{row // 3},有人在演奏音乐{row}\n" for row in range(12))
PAIR, NEXT, BY_ORDER = {"anchor": "a", "positive": "p"}, {"anchor": "b", "positive": "q"}, {"x": "b", "y": "q"}


def test_a_choice_by_order_that_was_hardly_meant_is_refused_but_not_a_few_numbers_nor_an_only_column(write, tmp_path):
    asked = "".join(f"how can I do thing number {row},by doing it so {row}\n" for row in range(30))
    for content, part in (
        ("How can I?,By doing.\nHi,ok\n" + asked, ""),
        ("number,left,right\n\n17,a,p\n", "'number' holds numbers, e.g. 17;"),
        (
            "a b,left,right\n17,a,p\n5,b,q\n",
            "data.columns.score='a b' or, to train on every pair, data.columns.anchor=",
        ),
        ('left,right,wert\na,p,"1,5"\nb,q,"2,5"\n', "data.columns.score=wert"),
        ("left,right,at\na,p,2026-11-26\na,p,1.2.2026\n", "'at' holds no sentences, e.g. 2026-11-26;"),
        ("left,seen\na,2026-11-26T10:00:00Z\na,12:30\n", "'seen' holds no sentences, e.g. 2026-11-26T10:00:00Z"),
        ("left,from\na,https://example.org/a\na,www.example.org\n", "'from' holds no sentences, e.g. https://example"),
        ("left,from\na,https://example.org/a b\n,\na,www.example.org\n", ""),
        ("left,key\na,doc_17\na,7f/3a\n", "'key' holds no sentences, e.g. doc_17;"),
        (CATEGORIES, "'register' holds 4 different values in 12 rows, e.g. some news 0"),
        (CATEGORIES.replace("some news", "one of the lines out of the part"), ""),  # as of NLI's premises
        (CHINESE, ""),
        ("positive,register\np,https://a\n", "'register' holds no sentences"),  # the anchor as the one that is left
        ("source,target\nhttps://a,b\n", "'source' holds no sentences"),
        ("Who?,Me.\na,p\n", "'Who?'"),
        ("Who is it?,What?\n" + "".join(f"somebody of us{n},and nothing{n}\n" for n in range(12)), ""),
        ("Who is it?,What?\n" + "I,and nothing\n" * 12, "'Who is it?'"),
        ("score,text\n" + '1,"a\nb"\n2,"c\nd"\n', "data.columns.anchor=text"),
        ("label,text\n" + '1,"a\nb"\n2,"c\nd"\n', ""),
        ("A man plays the guitar,Someone plays\na,p\n", "'A man plays the guitar'"),
    ):
        path = write("a.csv", content)
        if not part:
            assert read_examples(path).columns
            continue
        refused(path, "a.csv", part)
        columns = dict(zip(("anchor", "positive"), content.split("\n")[0].split(","), strict=False))
        assert read_examples(path, columns).columns  # by name they are taken
    for name, text in (("category", "news"), ("words", "doc_0"), ("link", "https://example.org")):
        assert read_examples(write("a.csv", name + f"\n{text}" * 40)).columns == ([text] * 40,)
    refused(write("a.csv", "words\n1\n2\n"), "'words' holds numbers")
    rows = "".join(f"q{row},{row if row % 2 else 'me'}\n" for row in (1969, 2, 3))
    assert read_examples(write("a.csv", f"question,answer\n{rows}")).columns[1] == ["1969", "me", "3"]
    table = pa.table({"q1": ["a", "b"], "id": [1, 2], "q2": ["p", "q"], "same": ["1", "0"]})
    pq.write_table(table, tmp_path / "a.parquet")
    refused(str(tmp_path / "a.parquet"), "a.parquet: the field 'same' holds numbers")
    pq.write_table(table.drop_columns("same"), tmp_path / "a.parquet")
    assert read_examples(str(tmp_path / "a.parquet")).columns == (["a", "b"], ["p", "q"])


def test_columns_are_mapped_or_told_and_labels_and_late_fields_do_not_get_lost(write):
    for columns, expected in (
        ({"anchor": "d", "positive": "a"}, "41"),
        ({"anchor": "b", "positive": "", "negative": ""}, "2"),
        ({"negative": "sent0", "anchor": "c", "positive": "a"}, "315"),
        ({"neutral": "b", "negative": "sent0", "anchor": "c", "positive": "a"}, "3152"),
    ):
        found = read_examples(write("train.csv", "a,b,c,d,sent0\n1,2,3,4,5\n"), columns).columns
        assert found == tuple([each] for each in expected)
    for header, columns, parts in (
        ("id,text", {"positive": "txt", "anchor": ""}, ["a.csv", "'txt'", "data.columns.positive", "id, text"]),
        ("sent0,sent1", {"neutral": "sent1", "anchor": "sent0"}, ["data.columns.negative"]),
        ("w,x,y,z", {}, ["a.csv", "w, x, y, z", "data.columns.anchor"]),
        ("genre,url,lang", {}, ["which columns", "genre, url, lang"]),
        ("anchor,good,neg", {}, ["'neg', but which column is the positive", "anchor, good, neg"]),
        ("positive,title,words", {}, ["'positive', but which column is the anchor", "positive, title, words"]),
    ):
        refused(write("a.csv", f"{header}\n{row_of(header)}\n"), *parts, **columns)
    path = write("a.csv", "y,label,sent1,sent0,hard_neg\n1,0,p,a,n\n-1,0,q,b,o\n2,0,r,c,m\n")
    examples = read_examples(path, {"label": "y", "anchor": ""})
    assert (examples.columns, examples.unlabelled) == ((["a", "c"], ["p", "r"], ["n", "m"]), 1)
    assert read_examples(path, {"label": "y"}, labels=True).labels.tolist() == [1, 2]
    mapped = read_examples(path, {"anchor": "sent1", "positive": "hard_neg"}, labels=True)
    assert (mapped.columns, mapped.labels.tolist()) == ((list("pqr"), list("nom")), [0, 0, 0])
    assert read_examples(write("b.csv", "my  text,x\na,p\n"), {"anchor": "my  text"}).columns == (["a"],)
    path = write("b.csv", "Label,label,sent0,sent1\nx,entailment,a,p\ny,neutral,b,q\n")
    assert read_examples(path, positives="neutral").columns == (["b"], ["q"])
    by_order = write("b.csv", "y,left,right\n2,a,p\n")
    assert read_examples(by_order, {"label": "y"}).columns == (["a"], ["p"])
    path = write("a.csv", "sent0,sent1,Label\na,p,entailment\nb,q,neutral\n")
    assert read_examples(path, positives="neutral").columns == (["b"], ["q"])
    path = write("b.csv", "sent0,sent1,gold_label,label\na,b,neutral,entailment\n")
    assert read_examples(path, labels=True).labels.tolist() == [0]
    for first, second, columns, late in (
        (PAIR, NEXT | {"negative": "n"}, {}, "negative"),
        (PAIR, NEXT | {"neg_1": "n"}, {}, ""),  # numbered ones may lack
        ({"text": "a"}, {"text": "b", "positive": "q"}, {}, "positive"),
        ({"x": "a", "y": "p"}, BY_ORDER | {"z": "n"}, {}, "z"),
        ({"x": "a", "y": "p"}, BY_ORDER | {"id": 7, "label": 0, "z": ""}, {}, ""),
        ({"text": "a"}, {"text": "b", "note": "n"}, {}, ""),
        ({"text": "a"}, {"text": "b", "positive": "q"}, {"anchor": "text"}, ""),
        (PAIR, NEXT | {"negative": None}, {}, ""),
        (PAIR | {"neg": []}, NEXT | {"neg": ["n"]}, {}, ""),
    ):
        path = write("a.jsonl", f"{json.dumps(first)}\n{json.dumps(second)}\n")
        if late:
            refused(path, f"a.jsonl: line 1: the field {late!r} is missing", **columns)
        else:
            read_examples(path, columns)
    path = write(
        "a.jsonl", "\n".join(map(json.dumps, (*[PAIR] * 10_000, PAIR | {"note": "", "url": "u"}, PAIR | {"neg": "n"})))
    )
    refused(path, "a.jsonl: line 10002: has the field 'neg', which earlier lines lack")
    for header, options, said in (
        ("id,sentence1,sentence2,label", {}, "its column 'label' is not read"),
        ("left,right,score", {}, "its column 'score' is not read"),
        ("left,right,Relevance", {}, "data.columns.score=Relevance"),
        ("qid1,question,answer,Question No", {}, "'answer' are read, and not 'Question No'"),
        ("left,right,", {}, "column 3 has no name and is not read"),
        ("idx,words,label", {}, ""),  # a sentence alone is no pair
        ("sent0,sent1,label", {"columns": {"anchor": "sent0", "positive": "sent1"}}, ""),
        ("anchor,pair", {}, "only its column 'anchor' is read, and not 'pair'; data.columns.anchor"),
        ("anchor,positive,neg_1,negative", {}, "columns 'anchor', 'positive', 'negative' are read, and not 'neg_1'"),
        ("anchor,positive,negative_01", {}, "columns 'anchor', 'positive' are read, and not 'negative_01'"),
        ("left,right,genre", {}, "only its columns 'left', 'right' are read, and not 'genre'"),
        ("question,answer,category", {}, ""),
        ("text,url,title,by,at", {}, "is read, and not 'title', 'by', 'at'; data.columns.anchor"),
        ("text,a,b,c,d", {}, "not 'a', 'b', 'c', …"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            read_examples(write("a.csv", f"{header}\n{row_of(header)}\n"), **options)
        assert [said in str(warning.message) for warning in caught] == [True] * bool(said)
