import gzip
import json
import sys
from collections import Counter
from itertools import combinations

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import CONFIGS, WORDS, sentences, write_model

from simcse_jax.data.augment import AUGMENTATIONS, augment, crop, delete, delete_one
from simcse_jax.data.draws import row_generator
from simcse_jax.data.synonyms import Synonyms
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.names import SOURCES
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.language_model import activation, logits, shapes
from simcse_jax.models.sentence_encoder import build

TEN = [f"w{number}" for number in range(10)]


def change(texts, name, percent=10.0, lexicon="", mlm_model="", seed=1, column=1):
    fields = {"percent": percent, "lexicon": str(lexicon), "mlm_model": str(mlm_model)}
    return augment(texts, name=name, seed=seed, column=column, **fields)


def draws(operation, words, *args, count=400):
    return Counter(" ".join(operation(words, *args, row_generator(5, row, 1))) for row in range(count))


def test_crop_keeps_a_span_that_starts_anywhere():
    found = draws(crop, TEN, 30)
    assert set(found) == {" ".join(TEN[start : start + 7]) for start in range(4)}
    assert min(found.values()) > 60  # 100 of each expected


def test_delete_takes_a_share_of_the_words_and_keeps_their_order():
    found = draws(delete, TEN[:5], 40)
    assert set(found) == {" ".join(kept) for kept in combinations(TEN[:5], 3)}
    assert min(found.values()) > 15  # 40 of each expected


def test_delete_one_takes_any_one():
    found = draws(delete_one, TEN[:4])
    assert set(found) == {" ".join(kept) for kept in combinations(TEN[:4], 3)}
    assert min(found.values()) > 60


@pytest.mark.parametrize(
    ("words", "percent", "left"),
    [(10, 10, 9), (4, 10, 4), (5, 10, 4), (14, 10, 13), (15, 10, 13), (10, 33, 7), (3, 99, 1), (1, 99, 1), (0, 50, 0)],
)
def test_how_many_words_a_share_is(words, percent, left):
    for operation in (crop, delete):
        assert len(operation(["word"] * words, percent, row_generator(0, 0, 0))) == left


def test_the_same_word_twice_is_two_words():
    assert delete(["a"] * 10, 30, row_generator(0, 0, 0)) == ["a"] * 7


@pytest.mark.parametrize("name", ["crop", "delete", "delete_one"])
def test_a_change_depends_on_seed_row_and_column_alone(name):
    texts = [" ".join(TEN)] * 40
    once = change(texts, name, 30)
    assert once == change(texts, name, 30)
    assert once[:7] == change(texts[:7], name, 30)
    others = ["other words", *texts[1:]]
    assert once[1:] == change(others, name, 30)[1:]
    assert len(set(once)) > 3  # rows differ
    assert once != change(texts, name, 30, seed=2)
    assert once != change(texts, name, 30, column=0)


def test_the_draws_are_not_those_of_the_batches():
    epochs = np.random.Generator(np.random.Philox(key=[3, 0]))
    assert epochs.integers(2**62) != row_generator(3, 0, 0).integers(2**62)


@pytest.mark.parametrize("name", ["crop", "delete", "delete_one"])
def test_little_sentences(name):
    assert change(["word", "  word ", "", " "], name, 90) == ["word", "word", "", ""]


@pytest.mark.parametrize("percent", [0.0, 100.0, -1.0, 150.0, float("nan")])
@pytest.mark.parametrize("name", ["crop", "delete", "mlm"])
def test_a_percentage_out_of_range(name, percent):
    with pytest.raises(UserError, match=r"data\.augment\.percent=.*: must be above 0 and below 100"):
        change(["a b"], name, percent, mlm_model="x")


def test_an_unknown_name():
    with pytest.raises(UserError, match=r"data\.augment\.name='shuffle': not one of crop, delete, delete_one, syn"):
        change(["a b"], "shuffle")
    assert AUGMENTATIONS == ("crop", "delete", "delete_one", "synonym", "mlm")


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
        ("men", ["adult male", "valet"]),  # an irregular form; its own word is no synonym
        ("playing", ["compete"]),
        ("plays", ["compete"]),
        ("bigger", []),  # the rules give "bigg" and "bigge"
        ("big", ["large"]),  # satellite adjectives are adjectives
        ("larger", ["big"]),
        ("bowl", ["dish", "roll"]),  # of both parts of speech
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
    assert "no synonym for any word of 3 of 4 sentences" in capsys.readouterr().out


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
    monkeypatch.setattr(wn.config, "_data_directory", mine)  # as a user's own would be
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
    refused(tmp_path / "text.xml", "no WN-LMF lexicon can be read")
    whole = lexicon.read_text()
    (tmp_path / "cut.xml").write_text(whole[: len(whole) // 2])
    refused(tmp_path / "cut.xml", "no WN-LMF lexicon can be read")
    (tmp_path / "field.xml").write_text(whole.replace("partOfSpeech", "other"))
    refused(tmp_path / "field.xml", "no WN-LMF lexicon can be read")
    refused(write_lexicon(tmp_path / "single.xml", [("n", ["lonely"], ["nobody"])]), "holds no synonyms")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "no WN-LMF lexicon can be read")
    (tmp_path / "folder" / "wn.db").write_text("no database")
    refused(tmp_path / "folder", "no WN-LMF lexicon can be read")


def test_the_extra_that_is_not_installed(lexicon, monkeypatch):
    monkeypatch.setitem(sys.modules, "wn", None)
    monkeypatch.setitem(sys.modules, "wn.morphy", None)
    with pytest.raises(UserError, match=r"pip install 'simcse_jax\[wordnet\]'"):
        change(["a b"], "synonym", lexicon=lexicon)


MASK = 39


def write_language_model(folder, head=True, mask=True):
    """A random BERT of 40 words, the last but five of them in use, with its language-model head."""
    write_model(folder, "bert")
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"], "test")
    generator = np.random.default_rng(3)
    tensors = load_file(folder / "model.safetensors")
    if head:
        for name, shape in shapes(config).items():
            tensors[SOURCES[name][0]] = generator.normal(0, 0.5, shape).astype(np.float32)
        tensors["cls.predictions.bias"][:4] = tensors["cls.predictions.bias"][30:] = 100  # specials, unused rows
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if mask:
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"]["[MASK]"] = MASK
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        fields = json.loads((folder / "tokenizer_config.json").read_text()) | {"mask_token": "[MASK]"}
        (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    return folder


@pytest.fixture(scope="module")
def masked_model(tmp_path_factory):
    return write_language_model(tmp_path_factory.mktemp("masked") / "model")


def differing(before, after):
    before, after = before.split(), after.split()
    assert len(before) == len(after)
    return [place for place, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]


def test_words_are_replaced_by_the_best_other_ones(masked_model):
    """Against the encoder and the head applied to one sentence after the other."""
    texts = [*sentences(66, seed=4), "zebra the cat"]  # more than a batch; a word that the tokenizer lacks
    replaced = change(texts, "mlm", 30, mlm_model=masked_model)

    model = load(str(masked_model))
    graph, _ = build(model.config, with_head=False)
    encode = jax.jit(lambda ids, mask: parameters.merge(graph, model.params).encoder(ids, mask)[-1][0])
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *dict.fromkeys(WORDS), "."]
    index = {word: vocabulary.index(word) for word in vocabulary}
    texts[-1] = "[UNK] the cat"  # as it comes back
    seen = Counter()
    for row, (before, after) in enumerate(zip(texts, replaced, strict=True)):
        places = differing(before, after)
        words = [word for word in before.split() if word != "[UNK]"]
        assert len(places) == max(1, int(len(words) * 0.3 + 0.5))
        seen.update(places)
        if row % 8 and row != len(texts) - 1:
            continue
        ids = np.array([2, *(index[word] for word in before.split()), 3])
        length, ids = len(ids), np.pad(ids, (0, 12 - len(ids)))
        masked = ids.copy()
        masked[[place + 1 for place in places]] = MASK
        hidden = encode(masked[None], (np.arange(12) < length)[None])
        scores = np.array(
            logits(
                hidden,
                model.language_model,
                model.params["encoder.embeddings.word.embedding"],
                activation=activation(model.config),
                eps=model.config.layer_norm_eps,
            )
        )
        scores[:, :4] = scores[:, len(vocabulary) :] = -np.inf
        for place in places:
            scores[place + 1, ids[place + 1]] = -np.inf
            assert after.split()[place] == vocabulary[scores[place + 1].argmax()]
    assert set(seen) >= set(range(7))  # any place can be chosen


def test_what_is_masked_depends_on_seed_row_and_column_alone(masked_model):
    texts = ["the cat sat on the mat in the park"] * 12
    once = change(texts, "mlm", 15, mlm_model=masked_model)
    assert all(len(differing(*pair)) == 1 for pair in zip(texts, once, strict=True))
    assert len(set(once)) > 3
    assert once[:3] == change(texts[:3], "mlm", 15, mlm_model=masked_model)
    assert once != change(texts, "mlm", 15, mlm_model=masked_model, seed=2)
    assert once != change(texts, "mlm", 15, mlm_model=masked_model, column=0)


def test_sentences_of_no_word_one_word_and_too_many(masked_model):
    longer = " ".join(["cat", "dog"] * 60)  # the model takes 64 tokens
    nothing, one, unknown, many = change(["", "cat", "zebra", longer], "mlm", 50, mlm_model=masked_model)
    assert nothing == "" and unknown == "[UNK]"
    assert one in WORDS and one != "cat"
    places = differing(longer, many)
    assert max(places) < 63 and len(places) == 32  # 63 words are seen


def test_models_that_cannot_replace_words(tmp_path, masked_model):
    with pytest.raises(UserError, match=r"data\.augment\.mlm_model: must name"):
        change(["cat"], "mlm", mlm_model="")
    headless = write_language_model(tmp_path / "headless", head=False)
    with pytest.raises(UserError, match=r"data\.augment\.mlm_model=.*headless: has no language-model head"):
        change(["cat"], "mlm", mlm_model=headless)
    maskless = write_language_model(tmp_path / "maskless", mask=False)
    with pytest.raises(UserError, match="maskless: its tokenizer has no mask token"):
        change(["cat"], "mlm", mlm_model=maskless)
