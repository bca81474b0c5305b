import sys
from pathlib import Path

import pytest
from support.data import raises

from simcse_jax.data.building.prose import plain_text, split_sentences
from simcse_jax.data.building.reading import Tally
from simcse_jax.data.building.wikipedia import read_pages

ARTICLE = """{{Infobox person
| name = Ada {{small|x}}
| list = * a
* b
}}
[[File:Ada.jpg|thumb|A picture of [[Ada]].]] [[Datei:Ada.jpg|thumb|A picture.]]
'''Ada Lovelace''' ({{IPA|x}}; born 1815) was an [[England|English]] mathematician ({{x}}).<ref>Smith (1999).</ref> She
wrote 5&nbsp;notes.

== A heading ==
* a list item.
# another.
: an indented line.
She died in 1852.{{cite}} See [http://x.org her page], <math>x^2</math> and [[:Category:Kept|this]].
{| class="wikitable"
! a
|-
| b || A cell's sentence.
|}
An unclosed {{template is no prose.

Nor are '''bold words without an end.

[[Category:People]]
[[de:Ada]]
----
__NOTOC__
"""


def test_prose_is_what_is_left():
    pytest.importorskip("mwparserfromhell", reason="not installed: pip install 'simcse_jax[wikipedia]'")
    assert plain_text(ARTICLE, {"datei"}).split("\n") == [
        "Ada Lovelace (born 1815) was an English mathematician. She",
        "wrote 5 notes.",
        "She died in 1852. See her page, and this.",
    ]


def test_sentences_end_where_the_rule_says_and_the_parser_is_asked_for_by_its_extra(monkeypatch):
    for text, sentences in (
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. J. Smith met Dr. Who. He left.", ["Mr. J. Smith met Dr. Who.", "He left."]),
        ("The U.S. Army came. It went.", ["The U.S. Army came.", "It went."]),
        ('He said "No!" Then (see Fig. 3) it rained.', ['He said "No!"', "Then (see Fig. 3) it rained."]),
        ("It was 3.5 m. high. it stayed. 5 came.", ["It was 3.5 m. high. it stayed.", "5 came."]),
        ('It ended (at last.) "Why?" he asked.', ["It ended (at last.)", '"Why?" he asked.']),
        ("A line\nanother line. \n\n Third.", ["A line", "another line.", "Third."]),
        ("Élan vital. Über alles. ¿Qué?", ["Élan vital.", "Über alles. ¿Qué?"]),
        ("Wait... What? No.", ["Wait...", "What?", "No."]),
        ("", []),
    ):
        assert split_sentences(text) == sentences
    assert len(split_sentences("A " + "." * 500_000 + "x.")) == 1  # hours, if each point began a search
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    raises("simcse_jax[wikipedia]", lambda: list(read_pages([Path("x.xml")], Tally("pages"))))
