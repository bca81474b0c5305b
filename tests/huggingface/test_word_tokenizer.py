import json
import pickle

import pytest

from simcse_jax.errors import UserError
from simcse_jax.huggingface.word_tokenizer import Vocabulary, WordTokenizer, read_vocabulary

WORDS = ["PADDING_TOKEN", "the", "cat", "Cat", "u.s.", "don't", "."]


def ids(sentence, **options):
    (found,) = WordTokenizer(Vocabulary(WORDS, **options))([sentence], 100)
    return found.tolist()


@pytest.mark.parametrize(
    ("sentence", "options", "expected"),
    [
        ("the cat", {}, [1, 2]),
        ("The Cat CAT, cat.", {}, [1, 3, 2, 2]),
        ("The Cat CAT, cat.", {"lower_case": True}, [1, 2, 2, 2]),
        ("u.s. U.S. (don't) . .. unknown", {}, [4, 5, 6]),
        ("The THE the. cat", {"stop_words": frozenset(["the"])}, [2]),
        ("Cat cat", {"stop_words": frozenset(["cat"])}, [3]),
        ("\tthe\u3000cat\n", {}, [1, 2]),
        ("", {}, []),
    ],
)
def test_words_are_looked_up_as_they_are_then_without_punctuation_then_in_lower_case(sentence, options, expected):
    assert ids(sentence, **options) == expected


def test_sentences_are_cut_and_padded():
    tokenizer = WordTokenizer(Vocabulary(WORDS))
    rows, cut = tokenizer.tokenize(["the cat the", "the", "the cat"], 2)
    assert [row.tolist() for row in rows] == [[1, 2], [1], [1, 2]] and cut == [0]
    padded, mask = tokenizer.pad(rows, 3)
    assert padded.tolist() == [[1, 2, 0], [1, 0, 0], [1, 2, 0]] and mask.sum(1).tolist() == [2, 1, 2]
    assert tokenizer.count_prompt("the the x", 9) == 2 and tokenizer.token(2) == "cat"
    assert [part.tolist() for part in tokenizer.words(["the cat", ""], 9)] == [[0, 1], []]


def test_it_is_saved_and_pickled(tmp_path):
    vocabulary = Vocabulary(WORDS, True, frozenset(["a", "the"]))
    tokenizer = WordTokenizer(vocabulary)
    tokenizer.save(tmp_path / "words.json")
    assert read_vocabulary(tmp_path / "words.json") == vocabulary
    assert pickle.loads(pickle.dumps(tokenizer)).content() == tokenizer.content()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab": None}, "vocab is None, no list of words"),
        ({"vocab": ["a", 1]}, "vocab is .*, no list of words"),
        ({"vocab": ["a", "a"]}, "vocab has a word twice"),
        ({"stop_words": "the"}, "stop_words is 'the', no list of words"),
        ({"do_lower_case": "no"}, "do_lower_case is 'no', neither true nor false"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, changes, message):
    path = tmp_path / "words.json"
    path.write_text(json.dumps(Vocabulary(WORDS).to_json() | changes))
    with pytest.raises(UserError, match=f"^{path}: {message}"):
        read_vocabulary(path)
