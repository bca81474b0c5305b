import sys

import pytest

from simcse_jax.commands import overlap
from simcse_jax.commands.overlap import lexical_overlap
from simcse_jax.errors import UserError


@pytest.mark.parametrize(
    ("first", "second", "f1"),
    [
        ("A man plays.", "a MAN, sleeps", 2 / 3),  # two of three words each
        ("the dog saw the cat", "the bird", 2 * 1 / 7),  # a multiset: "the" counts once, as often as in both
        ("the dog and the cat", "the the", 2 * 2 / 7),
        ("don't stop", "don’t stop", 1 / 2),  # an apostrophe is part of the word
        ("don't", "don t", 0),
        ("well-known", "well known", 1),
        ("same", "same", 1),
        ("one", "two", 0),
        ("...", "!", 0),
        ("Grüße aus Köln", "grüße köln", 4 / 5),
    ],
)
def test_f1_of_bags_of_words_by_hand(first, second, f1):
    assert lexical_overlap([first], [second]) == lexical_overlap([second], [first]) == pytest.approx(f1)


def test_the_mean_is_over_pairs():
    assert lexical_overlap(["a b", "a a b b"], ["a b", "c d"]) == 0.5


@pytest.mark.parametrize(("first", "second"), [([], []), (["a"], ["a", "b"])])
def test_sentences_that_are_not_pairs_are_refused(first, second):
    with pytest.raises(ValueError, match=r"pairs|shorter|longer"):
        lexical_overlap(first, second)


def call(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["overlap", *map(str, args)])
    overlap.main()


def test_the_command(tmp_path, monkeypatch, capsys):
    pairs = tmp_path / "pairs.csv"
    rows = ["a b,a b,entailment"] * 1200 + ["a b,c d,neutral"] * 1200
    pairs.write_text("\n".join(["sent0,sent1,label", *rows]) + "\n")
    call(monkeypatch, pairs)
    assert capsys.readouterr().out == "50.0% mean F1 of 2,400 pairs\n"
    call(monkeypatch, pairs, "--positives", "entailment")
    assert capsys.readouterr().out == "100.0% mean F1 of 1,200 pairs\n"
    pairs.write_text(pairs.read_text().replace("sent1,label", "other,gold"))
    call(monkeypatch, pairs, "--anchor=other", "--positive=sent0", "--label=gold", "--positives=neutral")
    assert capsys.readouterr().out == "0.0% mean F1 of 1,200 pairs\n"
    (tmp_path / "single.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"single\.txt: has one column"):
        call(monkeypatch, tmp_path / "single.txt")
