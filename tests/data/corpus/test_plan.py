import json

import pytest
from support.corpora import tokenizer_of
from support.data import raises

from simcse_jax.data.corpus.plan import Preparation, enter, expand, make_plan, most_columns


@pytest.fixture
def plan(tiny_bert, corpus):
    def make(*data, columns=(), vocabulary=40, length=16, **options):
        names = [str(each) for each in data or (corpus["csv"],)]
        return make_plan(
            names, tokenizer_of(tiny_bert), vocabulary, Preparation(length, columns=dict(columns), **options)
        )

    return make


def test_sources_are_read_in_order_and_another_corpus_s_folder_source_or_reading_is_refused(plan, corpus, tmp_path):
    assert plan().key["shard_rows"] == 1 << 22
    assert plan(length=64, shard_rows=22369621).key["shard_rows"] * 3 * 64 < 2**32
    raises("--shard-rows 22369622: must be at most 22369621", plan, length=64, shard_rows=22369622)
    enter(tmp_path, plan())
    for message, other in {
        "max_length was 16, is 8": plan(length=8),
        "columns was {}": plan(columns={"anchor": "sent0"}),
        "prompts was": plan(prompts=["query: "]),
        "keep_text": plan(keep_text=True),
        "train.csv, is ": plan(corpus["txt"]),
        "token_bytes was 2, is 4": plan(vocabulary=65537),
    }.items():
        raises(message, enter, tmp_path, other)
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("a cat\n")
    (tmp_path / "out").mkdir()
    enter(tmp_path / "out", plan(tmp_path / "*.txt"))
    (tmp_path / "c.txt").write_text("a cat\na dog\n")
    raises("c.txt: bytes was 6, is 12", enter, tmp_path / "out", plan(tmp_path / "*.txt"))
    (tmp_path / "c.txt").unlink()
    raises("c.txt, is missing", enter, tmp_path / "out", plan(tmp_path / "*.txt"))
    made = []
    for number in range(2):
        (tmp_path / "lexicon.xml").write_text(f"<a>{number}</a>")
        made.append(plan(corpus["txt"], augment={"name": "synonym", "lexicon": str(tmp_path / "lexicon.xml")}))
    assert made[0].key["augment"] != made[1].key["augment"] and made[0].key["seed"] == 42
    for message, data, options in (
        ("train.csv has triplets, ", (corpus["csv"], corpus["txt"]), {}),
        ("--prompt: 2 were given for 3 columns", (), {"prompts": ["a", "b"]}),
        ("--augment crop: ", (), {"augment": {"name": "crop"}}),
    ):
        raises(message, plan, *data, **options)
    assert most_columns(plan(corpus["csv"], corpus["txt"], mixed=True)) == 3
    assert json.loads(json.dumps(plan().key)) == plan().key
    a, b, c = (f"{tmp_path}/{name}.txt" for name in ("a", "b", "c[1]"))
    for name in (b, a, c):
        open(name, "w").close()
    assert expand([f"{tmp_path}/*.txt"], "--data") == [a, b, c]
    assert expand([c, f"{b},{a}", "hf:x[1]"], "--data") == [c, b, a, "hf:x[1]"]
    raises("--data ", expand, [f"{tmp_path}/*.pdf"], "--data")
    for again in (a, f"{tmp_path}/./a.txt"):
        raises("a.txt is named twice", expand, [f"{tmp_path}/*.txt", again], "--data")
