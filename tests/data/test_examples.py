import numpy as np
from support.data import raises, refused

from simcse_jax.data.examples import expand, read_examples

# Four labelled pairs among two unlabelled and two blank ones.
NLI = "gold_label,sentence1,sentence2\nentailment,a,b\nNeutral,c,d\n-,e,f\nCONTRADICTION ,g,h\n"
NLI += ",i,j\nneutral,k,l\nneutral,,m\nnonsense, ,n\n"
DOCUMENTS = "\n a \nb\nc\n\n \nd\n\ne\nf\n"


def test_positives_are_the_hypotheses_of_a_label_and_subsamples_the_seed_s(write, write_parquet):
    for positives, anchors, labels in (
        ("", "acgk", [0, 1, 2, 1]),
        ("all", "acgk", [0, 1, 2, 1]),
        ("entailment", "a", [0]),
        ("neutral", "ck", [1, 1]),
        ("contradiction", "g", [2]),
    ):
        nli = write("nli.csv", NLI)
        examples = read_examples(nli, positives=positives, labels=True)
        assert examples.columns == (list(anchors), [chr(ord(letter) + 1) for letter in anchors])
        assert (examples.labels.tolist(), examples.labels.dtype) == (labels, np.int32)
        assert (examples.blank, examples.unlabelled) == (2, 2)
        same = read_examples(nli, positives=positives)
        if positives:
            assert (same.columns, same.labels, same.unlabelled) == (examples.columns, None, 2)
        else:  # labels that are not needed are not read
            assert (same.columns[0], same.labels, same.unlabelled) == (list("acegik"), None, 0)
    path = write_parquet(label=[2, -1, None, 0], premise=list("abcd"), hypothesis=list("efgh"))
    examples = read_examples(path, labels=True)
    assert (examples.columns, examples.labels.tolist(), examples.unlabelled) == ((["a", "d"], ["e", "h"]), [2, 0], 2)
    for content, options, columns, parts in (
        ("sent0,sent1\na,b\n", {"positives": "all"}, {}, ["data.positives=all", "sent0, sent1", "data.columns.label"]),
        ("sent0,sent1\na,b\n", {"labels": True}, {}, ["objective.softmax_nli", "data.columns.label"]),
        ("sent0,sent1\na,b\n", {}, {"label": "y"}, ["'y'", "data.columns.label", "sent0, sent1"]),
        ("text,label\na,0\n", {"labels": True}, {}, ["needs pairs", "data.columns.positive"]),
        ("sent0,sent1,label\na,b,0\nc,d,maybe\n", {"labels": True}, {}, ["a.csv: line 3", "'label'", "'maybe'"]),
        ("sent0,sent1,label\na,b,0\n", {"positives": "neutral"}, {}, ["labelled neutral", "data.positives"]),
        ("sent0,sent1,label\na,b,-\n,,1\n", {"labels": True}, {}, ["1 blank rows and 1 rows without a label"]),
    ):
        refused(write("a.csv", content), *parts, options=options, **columns)
    path = write("a.jsonl", '{"sent0": "a", "sent1": "b", "label": 0}\n{"sent0": "c", "sent1": "d"}\n')
    refused(path, "line 2", "'label' is missing", options={"labels": True})
    rows = [(f"a{n:03}", f"b{n:03}", n % 3) for n in range(300)]
    path = write("a.csv", "sent0,sent1,label\n" + "".join(f"{a},{b},{label}\n" for a, b, label in rows))

    def read(count, seed=0):
        drawn = read_examples(path, labels=True, subsample=count, seed=seed)
        return list(zip(*drawn.columns, drawn.labels.tolist(), strict=True))

    assert read(0) == read(300) == rows
    assert len(read(50)) == len(set(read(50))) == 50
    assert read(50) == sorted(read(50)) and set(read(50)) <= set(rows)
    assert read(50) == read(50) != read(50, seed=1)
    assert read(50) != rows[:50]
    neutral = read_examples(path, positives="neutral", labels=True, subsample=40)
    assert set(neutral.labels) == {1} and len(neutral) == 40
    refused(path, "data.subsample=101", "a.csv", "100", options={"positives": "neutral", "subsample": 101})
    refused(path, "data.subsample=-1", options={"subsample": -1})


def test_next_sentences_are_drawn_with_the_seed_and_whole_documents_read_of_txt_files_alone(write):
    examples = read_examples(write("a.txt", DOCUMENTS), positives="next_sentence")
    assert (examples.columns, examples.blank, examples.labels) == ((["a", "b", "e"], ["b", "c", "f"]), 0, None)
    assert read_examples(write("a.txt", DOCUMENTS), positives="spans").columns == (["a b c", "d", "e f"],)
    path = write("a.txt", "\n\n".join("\n".join(f"{document} {n}" for n in range(9)) for document in "abcdefgh"))

    def read(seed):
        return read_examples(path, positives="next_3_sentences", seed=seed).columns

    assert read(0) == read(0) != read(1)
    anchors, positives = ([(text[0], int(text[2])) for text in column] for column in read(0))
    assert anchors == [(document, n) for document in "abcdefgh" for n in range(8)]
    assert all(a[0] == p[0] for a, p in zip(anchors, positives, strict=True))
    assert {p[1] - a[1] for a, p in zip(anchors, positives, strict=True)} == {1, 2, 3}
    for name, content, part in (
        ("a.txt", "\n\na\nb\n\n", "a.txt: no blank line between sentences"),
        ("a.txt", "a\n\nb\n\nc\n", "a.txt: no document has two sentences"),
        ("a.txt", "\n\n", "a.txt: holds no sentences"),
        ("a.csv", "sent0\na\n\nb\n", "a.csv: data.positives=next_sentence needs a .txt file"),
    ):
        refused(write(name, content), part, options={"positives": "next_sentence"})
    options = {"positives": "next_3_sentences"}
    refused("hf:wiki.txt", "hf:wiki.txt: data.positives=next_3_sentences", ".txt", options=options)
    refused(write("a.txt", DOCUMENTS), "objective.softmax_nli", options=options | {"labels": True})
    refused(write("a.txt", DOCUMENTS), "'text'", "data.columns.anchor", options=options, anchor="text")


def test_the_real_wikipedia_sample_is_recognized_as_shuffled(senteval):
    refused(f"{senteval.parent}/wiki_sample.txt", "shuffled", options={"positives": "next_sentence"})


def test_files_of_folders_and_patterns_are_sources_each_once(tmp_path):
    a, b, c = (f"{tmp_path}/{name}.txt" for name in ("a", "b", "c[1]"))
    for name in (b, a, c):
        open(name, "w").close()
    assert expand([f"{tmp_path}/*.txt"], "--data") == [a, b, c]
    assert expand([c, f"{b},{a}", "hf:x[1]"], "--data") == [c, b, a, "hf:x[1]"]
    raises("--data ", expand, [f"{tmp_path}/*.pdf"], "--data")
    for again in (a, f"{tmp_path}/./a.txt"):
        raises("a.txt is named twice", expand, [f"{tmp_path}/*.txt", again], "--data")


def test_classes_have_the_same_numbers_in_all_files(write):
    files = [write("a.csv", "text,label\na,x\nb,\nc,y\n"), write("b.csv", "text,label\nd,z\ne,x\n")]
    examples = read_examples(",".join(map(str, files)), classes=True)
    assert (examples.columns, examples.labels.tolist(), examples.unlabelled) == ((list("acde"),), [0, 1, 2, 0], 1)
    refused(write("c.csv", "text\na\n"), "no labels, but objective.supcon needs them", options={"classes": True})
