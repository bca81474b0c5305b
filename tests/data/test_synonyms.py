import gzip
import sys
from collections import Counter

import pytest
from support.data import change

from simcse_jax.data.synonyms import Synonyms
from simcse_jax.errors import UserError

# Part of speech, the word and its other forms, the synsets of its senses.
ENTRIES = [
    ("n", ["man", "men"], ["person", "servant"]),
    ("n", ["adult male"], ["person"]),
    ("n", ["valet"], ["servant"]),
    ("v", ["play"], ["game"]),
    ("v", ["compete"], ["game"]),
    ("s", ["big"], ["size"]),
    ("a", ["large"], ["size"]),
    ("n", ["Paris"], ["town"]),
    ("n", ["city of light"], ["town"]),
    ("n", ["a"], ["ampere"]),
    ("n", ["ampere"], ["ampere"]),
    ("n", ["lonely"], ["nobody"]),
    ("n", ["bowl"], ["dish"]),
    ("n", ["dish"], ["dish"]),
    ("v", ["bowl"], ["sport"]),
    ("v", ["roll"], ["sport"]),
]

HEADER = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE LexicalResource SYSTEM "http://globalwordnet.github.io/schemas/WN-LMF-1.1.dtd">
<LexicalResource xmlns:dc="https://globalwordnet.github.io/schemas/dc/">
<Lexicon id="test" label="Test" language="en" email="a@b.c" license="x" version="1">
"""


def write_lexicon(path, entries=ENTRIES):
    lines = [HEADER]
    for index, (part, (lemma, *forms), synsets) in enumerate(entries):
        lines += [f'<LexicalEntry id="test-e{index}"><Lemma writtenForm="{lemma}" partOfSpeech="{part}"/>']
        lines += [f'<Form writtenForm="{form}"/>' for form in forms]
        lines += [f'<Sense id="test-s{index}-{synset}" synset="test-{synset}"/>' for synset in synsets]
        lines += ["</LexicalEntry>"]
    parts = {synset: part for part, _, synsets in reversed(entries) for synset in synsets}
    lines += [f'<Synset id="test-{synset}" ili="" partOfSpeech="{part}"/>' for synset, part in parts.items()]
    content = "\n".join([*lines, "</Lexicon>", "</LexicalResource>", ""])
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content)
    return path


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory):
    pytest.importorskip("wn", reason="pip install 'simcse_jax[wordnet]'")
    return write_lexicon(tmp_path_factory.mktemp("wordnet") / "lexicon.xml")


@pytest.mark.parametrize(
    ("word", "synonyms"),
    [
        ("man", ["adult male", "valet"]),
        ("Man", ["adult male", "valet"]),
        ("men", ["adult male", "valet"]),  # an irregular form; its base form does not count
        ("playing", ["compete"]),
        ("plays", ["compete"]),
        ("bigger", []),  # the rules give "bigg" and "bigge"
        ("big", ["large"]),  # satellite adjectives are adjectives
        ("larger", ["big"]),
        ("bowl", ["dish", "roll"]),  # as both parts of speech
        ("dishes", ["bowl"]),
        ("bowling", ["roll"]),  # a verb's suffix
        ("paris", ["city of light"]),
        ("lonely", []),
        ("a", []),  # a determiner
        ("ampere", ["a"]),
        ("unknown", []),
        ("", []),
    ],
)
def test_synonyms_of_words(lexicon, word, synonyms):
    assert Synonyms(str(lexicon)).of(word) == synonyms


def test_one_word_is_replaced(lexicon, capsys):
    found = Counter(change(["The man plays a song."] * 300, "synonym", lexicon=lexicon))
    assert set(found) == {"The adult male plays a song.", "The valet plays a song.", "The man compete a song."}
    assert 110 < found["The man compete a song."] < 190  # a word is drawn first, then its synonym
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("sentence", "replaced"),
    [
        ("(Large)", "(Big)"),
        ("“Larger”, she", "“Big”, she"),
        ("PARIS!", "City of light!"),
        ("large", "big"),
        ("so  large  ...", "so big ..."),
    ],
)
def test_punctuation_and_capitals_are_kept(lexicon, sentence, replaced):
    assert change([sentence], "synonym", lexicon=lexicon) == [replaced]


def test_sentences_without_synonyms_stay_and_are_counted(lexicon, capsys):
    texts = ["a lonely unknown", "", "big", "-- !"]
    assert change(texts, "synonym", lexicon=lexicon) == ["a lonely unknown", "", "large", "-- !"]
    assert "3 of 4 sentences have no word with a synonym" in capsys.readouterr().out


def test_a_replacement_depends_on_seed_row_and_column_alone(lexicon):
    texts = ["the man plays with a large bowl in Paris"] * 30
    once = change(texts, "synonym", lexicon=lexicon)
    assert once[:5] == change(texts[:5], "synonym", lexicon=lexicon)
    assert once != change(texts, "synonym", lexicon=lexicon, seed=2)
    assert once != change(texts, "synonym", lexicon=lexicon, column=0)


def test_other_forms_of_a_lexicon(lexicon, tmp_path, monkeypatch):
    import wn

    mine = tmp_path / "mine"
    before = wn.config.database_path
    assert Synonyms(str(write_lexicon(tmp_path / "lexicon.xml.gz"))).of("man") == ["adult male", "valet"]
    assert wn.config.database_path == before
    monkeypatch.setattr(wn.config, "_data_directory", mine)  # stands for the user's own
    monkeypatch.setattr(wn.config, "_dbpath", mine / "wn.db")
    Synonyms(str(lexicon))
    assert not mine.exists()

    wn.config.data_directory = tmp_path / "data"
    wn.add(lexicon, progress_handler=None)
    wn.config.data_directory = mine
    synonyms = Synonyms(str(tmp_path / "data"))
    expected = Synonyms(str(lexicon))
    for word in ("men", "playing", "larger", "bowl", "paris"):
        assert sorted(synonyms.of(word)) == sorted(expected.of(word)) != []
    assert wn.config.database_path == mine / "wn.db" and not mine.exists()


def test_lexicons_that_cannot_be_used(lexicon, tmp_path):
    def refused(path, message):
        with pytest.raises(UserError, match=message) as error:
            change(["a b"], "synonym", lexicon=path)
        assert "\n" not in str(error.value) and str(error.value).startswith("data.augment.lexicon=")

    refused("", "no such file")
    refused(tmp_path / "missing.xml", r"missing\.xml': no such file")
    (tmp_path / "text.xml").write_text("no lexicon\n")
    refused(tmp_path / "text.xml", "not a readable WN-LMF lexicon")
    whole = lexicon.read_text()
    (tmp_path / "cut.xml").write_text(whole[: len(whole) // 2])
    refused(tmp_path / "cut.xml", "not a readable WN-LMF lexicon")
    (tmp_path / "field.xml").write_text(whole.replace("partOfSpeech", "other"))
    refused(tmp_path / "field.xml", "not a readable WN-LMF lexicon")
    refused(write_lexicon(tmp_path / "single.xml", [("n", ["lonely"], ["nobody"])]), "holds no synonyms")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "not a readable WN-LMF lexicon")
    (tmp_path / "folder" / "wn.db").write_text("no database")
    refused(tmp_path / "folder", "not a readable WN-LMF lexicon")


def test_a_missing_extra_is_named(lexicon, monkeypatch):
    monkeypatch.setitem(sys.modules, "wn", None)
    monkeypatch.setitem(sys.modules, "wn.morphy", None)
    message = r'^data\.augment\.name=synonym: not installed: wn; run: pip install "simcse_jax\[wordnet\]"$'
    with pytest.raises(UserError, match=message):
        change(["a b"], "synonym", lexicon=lexicon)
