import pytest

from simcse_jax.huggingface.stop_words import ENGLISH_STOP_WORDS


def test_common_words_are_there_and_others_are_not():
    assert {"the", "a", "of", "\\", '"'} <= ENGLISH_STOP_WORDS and "cat" not in ENGLISH_STOP_WORDS
    assert all(word == word.strip() and word for word in ENGLISH_STOP_WORDS)


@pytest.mark.slow
def test_they_are_those_of_sentence_transformers():
    theirs = pytest.importorskip("sentence_transformers.sentence_transformer.modules.tokenizer.word")
    assert set(theirs.ENGLISH_STOP_WORDS) == ENGLISH_STOP_WORDS
