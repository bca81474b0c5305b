import sys

import pytest
from support import ROOT

from simcse_jax.data.examples import read_examples

ROWS = [  # premise, hypothesis, label
    ("P1", "e1", "entailment"),
    ("P1", "n1", "neutral"),
    ("P1", "c1, or so", "contradiction"),
    ("P1", "e2", "entailment"),  # the last one counts
    ("P2", "n2", "neutral"),
    ("P2", "c2", "contradiction"),
    ("P3", "c3", "contradiction"),
    ("P3", "x", "-"),
    ("P3", "e3", "entailment"),  # in the second file
]


@pytest.fixture
def make(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import snli_triplets

    for split, rows in (("dev", ROWS[:-1]), ("test", ROWS[-1:])):
        for name, column in zip(("s1", "s2", "labels"), zip(*rows, strict=True), strict=True):
            (tmp_path / f"{name}.{split}").write_text("\n".join(column) + "\n")

    def make(*options: str) -> str:
        output = str(tmp_path / "out.csv")
        monkeypatch.setattr(sys, "argv", ["snli_triplets", "--snli", str(tmp_path), "--output", output, *options])
        snli_triplets.main()
        assert output in capsys.readouterr().out
        return output

    return make


def test_triplets_have_both_hypotheses(make):
    assert read_examples(make()).columns == (["P1", "P3"], ["e2", "e3"], ["c1, or so", "c3"])


def test_neutral_hypotheses_are_a_fourth_column(make):
    names = {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg", "neutral": "neutral"}
    assert read_examples(make("--neutral"), names).columns == (["P1"], ["e2"], ["c1, or so"], ["n1"])


def test_pairs_are_all_that_have_a_label(make):
    pairs = read_examples(make("--pairs"), labels=True)
    labelled = [row for row in ROWS if row[2] != "-"]
    assert pairs.columns == ([row[0] for row in labelled], [row[1] for row in labelled])
    names = ("entailment", "neutral", "contradiction")
    assert [names[label] for label in pairs.labels] == [row[2] for row in labelled]
    assert pairs.unlabelled == 0
