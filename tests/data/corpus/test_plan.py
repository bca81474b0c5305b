import json
import os

import pytest
from support.corpora import tokenizer_of
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus.plan import enter, expand, make_plan, most_columns
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import PLAN


@pytest.fixture
def plan(tiny_bert, corpus):
    def make(*data, columns=(), **options):
        names = [str(each) for each in data or (corpus["csv"],)]
        return make_plan(
            names, tokenizer_of(tiny_bert), 40, options.pop("length", 16), columns=dict(columns), **options
        )

    return make


def test_a_shard_has_no_more_tokens_than_its_numbers_can_count(plan):
    assert plan().key["shard_rows"] == 1 << 22
    assert plan(length=64, shard_rows=22369621).key["shard_rows"] * 3 * 64 < 2**32
    with pytest.raises(UserError, match="--shard-rows 22369622: must be at most 22369621"):
        plan(length=64, shard_rows=22369622)


def test_another_corpus_s_folder_is_refused_and_the_difference_named(plan, tiny_bert, corpus, tmp_path):
    enter(tmp_path, plan())
    enter(tmp_path, plan())
    cases = {
        "max_length was 16, is 8": plan(length=8),
        "columns was {}": plan(columns={"anchor": "sent0"}),
        "prompts was": plan(prompts=["query: "]),
        "keep_text": plan(keep_text=True),
        "source 1 was .*train.csv, is .*train.txt;": plan(corpus["txt"]),
        "token_bytes was 2, is 4": make_plan([str(corpus["csv"])], tokenizer_of(tiny_bert), 65537, 16, columns={}),
    }
    for message, other in cases.items():
        with pytest.raises(UserError, match=f"is another corpus's: .*{message}"):
            enter(tmp_path, other)


def test_what_earlier_versions_read_in_another_way_is_another_corpus(plan, tmp_path):
    contents = {"a.tsv": ('sent0\n"He said ""no"""\n', ["tabs, quoted"]), "c.tsv": ('sent0\nHe said "no"\n', None)}
    contents |= {"b.csv": ("answer,question,kind\nme,who?,short\n", ["question", "answer"])}
    contents |= {"d.csv": ("sent0,sent1,kind\na,p,b\n", None), "e.csv": ("id,question,answer\n1,a,p\n", None)}
    for name, (content, read) in contents.items():
        (tmp_path / name).write_text(content)
        assert plan(tmp_path / name).key.get("read as") == (read and {str(tmp_path / name): read})


def test_a_source_that_was_written_to_is_refused(plan, tmp_path):
    (tmp_path / "a.txt").write_text("a cat\n")
    (tmp_path / "out").mkdir()
    enter(tmp_path / "out", plan(tmp_path / "a.txt"))
    os.utime(tmp_path / "a.txt", (1, 1))
    with pytest.raises(UserError, match=r"a\.txt: was changed since"):
        enter(tmp_path / "out", plan(tmp_path / "a.txt"))
    assert json.loads((tmp_path / "out" / PLAN).read_text())["key"]["max_length"] == 16


def test_the_source_that_differs_is_named(plan, tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("a cat\n")
    (tmp_path / "out").mkdir()
    enter(tmp_path / "out", plan(tmp_path / "*.txt"))
    (tmp_path / "c.txt").write_text("a cat\na dog\n")
    with pytest.raises(UserError, match=r"corpus's: \S*/c\.txt: bytes was 6, is 12; choose"):
        enter(tmp_path / "out", plan(tmp_path / "*.txt"))
    (tmp_path / "c.txt").unlink()
    with pytest.raises(UserError, match=r"source 3 was \S*/c\.txt, is missing"):
        enter(tmp_path / "out", plan(tmp_path / "*.txt"))


def test_another_lexicon_under_the_same_name_is_refused(plan, corpus, tmp_path):
    (tmp_path / "out").mkdir()
    for number in range(2):
        (tmp_path / "lexicon.xml").write_text(f"<a>{number}</a>")
        made = plan(corpus["txt"], augment={"name": "synonym", "lexicon": str(tmp_path / "lexicon.xml")})
        if number == 0:
            enter(tmp_path / "out", made)
    with pytest.raises(UserError, match="augment was"):
        enter(tmp_path / "out", made)


def test_a_folder_with_other_files_is_refused(plan, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match="has other files"):
        enter(tmp_path, plan())


def test_sources_and_options_that_do_not_fit_are_refused(plan, corpus):
    cases = {
        "has triplets, .* has sentences": ((corpus["csv"], corpus["txt"]), {}),
        "2 were given for 3 columns": ((), {"prompts": ["a", "b"]}),
        "has positives of its own": ((), {"augment": {"name": "crop"}}),
        "needs a .txt file": ((), {"positives": "next_sentence"}),
        "no such file": (("/no/such.txt",), {}),
    }
    for message, (data, options) in cases.items():
        with pytest.raises(UserError, match=message):
            plan(*data, **options)
    assert most_columns(plan(corpus["csv"], corpus["txt"], mixed=True)) == 3


def test_patterns_are_files_in_the_order_of_their_names(tmp_path):
    for name in ("b.txt", "a.txt", "c[1].txt"):
        (tmp_path / name).write_text("a cat\n")
    assert expand([f"{tmp_path}/*.txt"], "--data") == [f"{tmp_path}/{name}.txt" for name in ("a", "b", "c[1]")]
    assert expand([f"{tmp_path}/c[1].txt", f"{tmp_path}/b.txt,{tmp_path}/a.txt", "hf:x[1]"], "--data")[0].endswith(
        "c[1].txt"
    )
    with pytest.raises(UserError, match="no file matches"):
        expand([f"{tmp_path}/*.csv"], "--data")
    for again in (f"{tmp_path}/a.txt", f"{tmp_path}/./a.txt"):
        with pytest.raises(UserError, match=r"a\.txt is named twice"):
            expand([f"{tmp_path}/*.txt", again], "--data")


@NEEDS_GCSFS
def test_patterns_in_a_bucket(store):
    for name in ("text/b.txt", "text/a.txt", "other/c.txt"):
        store.put(name, b"a cat\n")
    assert expand(["gs://bucket/text/*.txt"], "--data") == ["gs://bucket/text/a.txt", "gs://bucket/text/b.txt"]
