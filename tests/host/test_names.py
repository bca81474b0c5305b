import re
from pathlib import Path

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host.names import AtStep, split_glove, split_label, split_sources, split_step

STEPS = {"runs/a": ("runs/a", None), "runs/a@step=200": ("runs/a", 200), "runs/a@step=0": ("runs/a", 0)}
STEPS |= {"gs://bucket/a@step=last": ("gs://bucket/a", "last"), "owner/model@main": ("owner/model@main", None)}
STEPS |= {"runs@2026/a@step=20": ("runs@2026/a", 20), "runs@step=3/a": ("runs@step=3/a", None)}
STEPS |= {"@step=3": ("@step=3", None), "a\nb@step=3": ("a\nb", 3)}


def test_a_name_may_end_in_a_step_which_is_a_number_or_last(tmp_path):
    for name, expected in STEPS.items():
        assert split_step(name) == expected and str(split_step(name)) == name
    for step in ("", "best", "-1", "1.5", "٣", "1e3", "9" * 200, " 3"):
        with pytest.raises(UserError, match="is not a checkpoint; give the number of a step, or step=last"):
            split_step(f"run@step={step}")
    (tmp_path / "run@step=3").mkdir()  # a path that exists is no checkpoint
    assert split_step(f"{tmp_path}/run@step=3") == AtStep(f"{tmp_path}/run@step=3", None)


GLOVE = {"glove:a.txt": ("a.txt", False, False), "glove:/data/b c:d+e.txt": ("/data/b c:d+e.txt", False, False)}
GLOVE |= {"glove+lower:a.txt": ("a.txt", True, False), "glove+stopwords+lower:a.txt": ("a.txt", True, True)}


def test_word_vectors_have_a_name_with_options():
    for name, (file, *options) in GLOVE.items():
        assert split_glove(name) == (Path(file), *options)
    assert [split_glove(name) for name in ("glove", "package:glove", "gloves:a.txt", "runs/glove:1", "")] == [None] * 5
    for name, message in (
        ("glove+upper:a.txt", "no option 'upper'; glove:FILE may have lower and stopwords"),
        ("glove+lower+lower:a.txt", "no option 'lower'"),
        ("glove+:a.txt", "no option ''"),
        ("glove:", "does not name a file on a disk"),
        ("glove: ", "does not name a file on a disk"),
        ("glove:gs://bucket/a.txt", "does not name a file on a disk"),
    ):
        with pytest.raises(UserError, match=re.escape(f"{name}: {message}")):
            split_glove(name)


LABELS = {"model": ("model", ""), "model@3@flow=BERT-flow (NLI)": ("model@3@flow", "BERT-flow (NLI)")}
LABELS |= {"a=b=c": ("a=b", "c"), "run@step=3": ("run@step=3", ""), "run@step=last= x ": ("run@step=last", "x")}
LABELS |= {"run@step=200@3": ("run@step=200@3", ""), "runs/tau=0.05@avg": ("runs/tau=0.05@avg", "")}
LABELS |= {"runs/tau=0.05@avg=mine": ("runs/tau=0.05@avg", "mine")}
LABELS |= {"glove:a.txt@avg=GloVe": ("glove:a.txt@avg", "GloVe"), "=x": ("=x", "")}


def test_a_name_may_have_a_label(tmp_path):
    assert {text: split_label(text) for text in LABELS} == LABELS
    (tmp_path / "tau=1").mkdir()  # a folder that exists is a name as a whole
    assert split_label(f"{tmp_path}/tau=1") == (f"{tmp_path}/tau=1", "")
    assert split_label(f"{tmp_path}/tau=1=c") == (f"{tmp_path}/tau=1", "c")
    with pytest.raises(UserError, match="x=: the label is empty"):
        split_label("x=")


def test_a_list_of_sources_has_its_names_in_quotes_where_they_have_commas(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b.txt").write_text("eins\n")
    assert split_sources("a.txt") == ["a.txt"]
    assert split_sources("a.txt, hf:x:y") == ["a.txt", "hf:x:y"]
    assert split_sources("a,b.txt") == ["a,b.txt"]  # such a file exists
    assert split_sources('c.txt,"a,b.txt"') == ["c.txt", "a,b.txt"]
    for specification, part in (
        ("a.txt,,b.txt", "source 2 of 3 has no name"),
        ("a.txt,", "source 2 of 2"),
        ("a.txt, b.txt,a.txt", "a.txt is named twice"),
        ("a.txt,./a.txt", "a.txt is named twice"),
        ('a.txt,"b.txt', "not a list of sources"),
    ):
        with pytest.raises(UserError, match=part):
            split_sources(specification)
