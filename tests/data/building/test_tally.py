import pytest

from simcse_jax.data.building.tally import Tally, sentence
from simcse_jax.data.rows import MISSING
from simcse_jax.errors import UserError


def test_what_is_not_dropped_is_used():
    tally = Tally("pairs")
    tally.read = 2000
    tally.drop("neutral", 3)
    tally.drop("blank")
    tally.drop("neutral", 2)
    tally.notes.append("a note")
    lines = ["2,000 pairs read, 1,994 used", "  5 dropped: neutral", "  1 dropped: blank", "a note"]
    assert tally.lines() == lines


def test_a_sentence_is_one_line_without_white_space_around_it():
    assert sentence("  a  b \r\n c\u2028d ", "x") == "a  b c d"
    assert sentence(None, "x") == ""
    assert len(sentence("a" + " " * 500_000 + "b", "x")) == 500_002  # many minutes, if each space began a search
    for wrong, part in (
        (MISSING, "x is missing"),
        (3, "x holds 3, not text"),
        ("\ud800", r"x holds a broken character \(U\+D800 alone\); remove or replace it"),
        ("a\0", "x holds a zero byte; remove it"),
    ):
        with pytest.raises(UserError, match=part):
            sentence(wrong, "x")


def test_long_work_says_how_much_was_read(monkeypatch, capsys):
    monkeypatch.setattr("simcse_jax.host.progress.LINE_SECONDS", 0)
    tally = Tally("pages")
    for _ in range(250):
        tally.see()
    assert capsys.readouterr().err == "100 pages read\n200 pages read\n" and tally.read == 250
