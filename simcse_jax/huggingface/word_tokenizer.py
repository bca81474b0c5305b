"""Sentences to words, for averages of word vectors: split at white space, as sentence-transformers does."""

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.host.storage import read_json
from simcse_jax.huggingface.tokenizer import Tokenizer

PADDING = "PADDING_TOKEN"  # row 0, whose vector is zero; sentence-transformers' name


class Vocabulary(NamedTuple):
    """The words of a table of vectors, and how sentences are read: sentence-transformers' `WhitespaceTokenizer`."""

    words: Sequence[str]  # V, in the order of the table's rows
    lower_case: bool = False  # sentences are put into lower case first
    stop_words: frozenset[str] = frozenset()  # left out

    def to_json(self) -> dict[str, Any]:
        """The fields of the file that sentence-transformers reads."""
        stop_words = sorted(self.stop_words)
        return {"vocab": list(self.words), "stop_words": stop_words, "do_lower_case": self.lower_case}


def read_vocabulary(path: Path) -> Vocabulary:
    """Reads the file of a `WhitespaceTokenizer`."""
    fields = read_json(path)
    words, stop_words, lower = (fields.get(name) for name in ("vocab", "stop_words", "do_lower_case"))
    for name, found in (("vocab", words), ("stop_words", stop_words)):
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise UserError(f"{path}: {name} is {found!r:.60}, no list of words")
    if not isinstance(lower, bool):
        raise UserError(f"{path}: do_lower_case is {lower!r:.60}, neither true nor false")
    assert words is not None and stop_words is not None
    if len(set(words)) < len(words):
        raise UserError(f"{path}: vocab has a word twice")
    return Vocabulary(words, lower, frozenset(stop_words))


class WordTokenizer(Tokenizer):
    """Sentences to the numbers of their words; there are no special tokens, and a sentence may have no word at all.

    A token is looked up as it is, then without punctuation at its ends, then in lower case. One that is in none of
    these forms in the vocabulary is left out, and so is one that is, in the form looked up, a stop word.
    """

    def __init__(self, vocabulary: Vocabulary):
        self.pad_token_id = 0
        self._vocabulary = vocabulary
        self._numbers = {word: number for number, word in enumerate(vocabulary.words)}

    def __getstate__(self) -> dict[str, Any]:
        return {"vocabulary": self._vocabulary}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["vocabulary"])  # type: ignore[misc]

    def tokenize(self, sentences: Sequence[str], max_length: int) -> tuple[list[np.ndarray], list[int]]:
        """The numbers of the words, and the rows of sentences that were cut at `max_length` known words."""
        found = [self._words_of(sentence) for sentence in sentences]
        cut = [row for row, numbers in enumerate(found) if len(numbers) > max_length]
        return [np.array(numbers[:max_length], np.int32) for numbers in found], cut

    def _words_of(self, sentence: str) -> list[int]:
        numbers = []
        for token in (sentence.lower() if self._vocabulary.lower_case else sentence).split():
            stripped = token.strip(string.punctuation)
            for form in (token, stripped, stripped.lower()):
                if form in self._vocabulary.stop_words:
                    break
                if form in self._numbers:
                    numbers.append(self._numbers[form])
                    break
        return numbers

    def words(self, sentences: Sequence[str], max_length: int) -> list[np.ndarray]:
        """Each token is a word of its own."""
        return [np.arange(len(numbers), dtype=np.int32) for numbers in self(sentences, max_length)]

    def count_prompt(self, prompt: str, max_length: int) -> int:
        """The number of known words that a prompt has."""
        return len(self([prompt], max_length)[0])

    def token(self, number: int) -> str:
        """The word."""
        return self._vocabulary.words[number]

    def save(self, path: Path) -> None:
        """Writes the file that `read_vocabulary` reads."""
        path.write_bytes(self.content())

    def content(self) -> bytes:
        """The bytes that `save` writes."""
        return json.dumps(self._vocabulary.to_json()).encode()
