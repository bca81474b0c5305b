import gzip
import sys
from collections import Counter

import pytest
from support.data import change, raises

from simcse_jax.data.synonyms import Synonyms

# Part of speech, the word and its other forms, the synsets of its senses.
ENTRIES = """
n man,men person,servant; n adult_male person; n valet servant; v play game; v compete game; s big size; a large size;
n Paris town; n city_of_light town; n a ampere; n ampere ampere; n lonely nobody; n bowl dish; n dish dish;
v bowl sport; v roll sport
"""

HEADER = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE LexicalResource SYSTEM "http://globalwordnet.github.io/schemas/WN-LMF-1.1.dtd">
<LexicalResource xmlns:dc="https://globalwordnet.github.io/schemas/dc/">
<Lexicon id="test" label="Test" language="en" email="a@b.c" license="x" version="1">
"""


def write_lexicon(path, entries=ENTRIES):
    lines, parts = [HEADER], {}
    for index, entry in enumerate(entries.split(";")):
        part, forms, synsets = entry.split()
        lemma, *forms = forms.replace("_", " ").split(",")
        lines += [f'<LexicalEntry id="test-e{index}"><Lemma writtenForm="{lemma}" partOfSpeech="{part}"/>']
        lines += [f'<Form writtenForm="{form}"/>' for form in forms]
        for synset in synsets.split(","):
            lines += [f'<Sense id="test-s{index}-{synset}" synset="test-{synset}"/>']
            parts.setdefault(synset, part)
        lines += ["</LexicalEntry>"]
    lines += [f'<Synset id="test-{synset}" ili="" partOfSpeech="{part}"/>' for synset, part in parts.items()]
    content = "\n".join([*lines, "</Lexicon>", "</LexicalResource>", ""]).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory):
    pytest.importorskip("wn", reason="pip install 'simcse_jax[wordnet]'")
    return write_lexicon(tmp_path_factory.mktemp("wordnet") / "lexicon.xml")


def test_one_word_is_replaced_by_a_synonym_of_the_lexicon(lexicon, capsys, tmp_path):
    found = Counter(change(["The man plays a song."] * 300, "synonym", lexicon=lexicon))
    assert set(found) == {"The adult male plays a song.", "The valet plays a song.", "The man compete a song."}
    assert 110 < found["The man compete a song."] < 190  # a word is drawn first, then its synonym
    assert capsys.readouterr().out == ""
    texts = ["(Large)", "“Larger”, she", "PARIS!", "large", "so  large  ...", "a lonely unknown", "", "-- !"]
    replaced = ["(Big)", "“Big”, she", "City of light!", "big", "so big ...", "a lonely unknown", "", "-- !"]
    assert change(texts, "synonym", lexicon=lexicon) == replaced
    assert "3 of 8 sentences have no word with a synonym" in capsys.readouterr().out
    texts = ["the man plays with a large bowl in Paris"] * 30
    once = change(texts, "synonym", lexicon=lexicon)
    assert once[:5] == change(texts[:5], "synonym", lexicon=lexicon)
    assert once != change(texts, "synonym", lexicon=lexicon, seed=2)
    assert once != change(texts, "synonym", lexicon=lexicon, column=0)
    of = Synonyms(str(lexicon)).of
    for words, synonyms in (
        ("man Man men", ["adult male", "valet"]),  # an irregular form's base form does not count
        ("playing plays", ["compete"]),
        ("big", ["large"]),  # satellite adjectives are adjectives
        ("larger", ["big"]),
        ("bowl", ["dish", "roll"]),  # as both parts of speech
        ("dishes", ["bowl"]),
        ("bowling", ["roll"]),  # a verb's suffix
        ("paris", ["city of light"]),
        ("ampere", ["a"]),
        ("bigger lonely a unknown", []),  # the rules give "bigg" and "bigge"; a determiner
    ):
        assert [of(word) for word in words.split()] == [synonyms] * len(words.split())
    assert of("") == []
    assert Synonyms(str(write_lexicon(tmp_path / "lexicon.xml.gz"))).of("man") == ["adult male", "valet"]


def test_lexicons_that_cannot_be_used_and_a_missing_extra_are_named(lexicon, tmp_path, monkeypatch):
    whole = lexicon.read_text()
    (tmp_path / "cut.xml").write_text(whole[: len(whole) // 2])
    (tmp_path / "field.xml").write_text(whole.replace("partOfSpeech", "other"))
    for name, message in (
        ("missing.xml", "missing.xml: not a readable WN-LMF lexicon"),
        ("cut.xml", "cut.xml: not a readable WN-LMF lexicon"),
        ("field.xml", "field.xml: not a readable WN-LMF lexicon"),
    ):
        raises(message, change, ["a b"], "synonym", lexicon=tmp_path / name)
    monkeypatch.setitem(sys.modules, "wn", None)
    monkeypatch.setitem(sys.modules, "wn.morphy", None)
    raises("simcse_jax[wordnet]", change, ["a b"], "synonym", lexicon=lexicon)
