"""Word vectors: read from text in the format of GloVe and word2vec, and from and to sentence-transformers' folders.

A line of such a text has a word and its D numbers, with single spaces in between. The first line may have the number of
words and D, as word2vec and fastText write it. The file may be compressed with gzip.

Some lines of glove.840B.300d have spaces within the word, such as "at name@domain.com". No token of a sentence can be
such a word, so these lines, which have too many parts, are left out. It also has a word on two lines, of which the last
one counts, as in sentence-transformers.

Sentences are split at white space, as sentence-transformers does.
"""

import array
import codecs
import functools
import gzip
import json
import re
import string
import warnings
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.errors import UserError, not_utf8, system_message
from simcse_jax.host.storage import read_json, write_json
from simcse_jax.huggingface.tokenizer import WORDS_FILE, Tokenizer
from simcse_jax.huggingface.weight_files import read_weights, write_safetensors
from simcse_jax.huggingface.weight_names import tensor_of

HEADER = re.compile(rb"\d+ \d+")
LONGEST = 1 << 24  # bytes of a line
PADDING = "PADDING_TOKEN"  # row 0, whose vector is zero; sentence-transformers' name
# English words that an average leaves out, as sentence-transformers (Apache 2.0) does by default.
ENGLISH_STOP_WORDS = frozenset(Path(__file__).with_name("english_stop_words.txt").read_text(encoding="utf-8").split())
FILE = "wordembedding_config.json"
TENSOR = "emb_layer.weight"
# All versions of sentence-transformers find the class by this name.
TOKENIZER = "sentence_transformers.models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer"


class Vectors(NamedTuple):
    """The words of a file and their vectors, after a row of zeros for padding."""

    words: list[str]  # V
    table: np.ndarray  # (V, D) float32


def read_glove(path: Path) -> Vectors:
    """Reads a file. Memory holds its numbers and words.

    Warnings count the lines that are left out, and those of words that are there more than once.
    """
    if path.exists() and not path.is_file():  # a pipe might never have a writer
        raise UserError(f"{path}: is no file; name one of word vectors, such as glove.6B.300d.txt")
    try:
        with warnings.catch_warnings(), open(path, "rb") as file:
            warnings.simplefilter("error", DeprecationWarning)  # NumPy 2.0 warns of what is not a number
            is_compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            opened: Any = gzip.GzipFile(fileobj=file) if is_compressed else file
            return _read(path, iter(functools.partial(opened.readline, LONGEST), b""))
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{path}: cannot be read: {system_message(error)}; name a file of word vectors, such as glove.6B.300d.txt"
        ) from None


def _read(path: Path, lines: Iterable[bytes]) -> Vectors:
    rows: dict[str, int] = {PADDING: 0}  # of the table, by word
    table, announced, dimension, left_out, again = array.array("f"), 0, 0, 0, 0
    for number, line in enumerate(lines, 1):
        if len(line) == LONGEST:
            raise UserError(f"{path}: line {number}: has {LONGEST >> 20} MB or more; it is not a file of word vectors")
        text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b" \r\n")
        if not text:
            continue
        if not dimension:
            is_header = HEADER.fullmatch(text)
            announced, dimension = map(int, text.split()) if is_header else (0, text.count(b" "))
            if not 2 <= dimension <= 1 << 16:
                raise UserError(
                    f"{path}: line 1: {dimension} numbers; a vector has 2 or more, after its word and a space"
                )
            table.extend([0.0] * dimension)
            if is_header:
                continue
        if text.count(b" ") > dimension:
            left_out += 1
            continue
        word, vector = _parse(f"{path}: line {number}", text, dimension)
        row = rows.setdefault(word, len(rows))
        if row * dimension < len(table):
            again += 1
            table[row * dimension : (row + 1) * dimension] = array.array("f", vector.tobytes())
        else:
            table.frombytes(vector.tobytes())
    read = len(rows) - 1 + again
    if not read:
        raise UserError(f"{path}: has no word vectors")
    if announced and announced != read + left_out:
        raise UserError(
            f"{path}: line 1 announces {announced} words, but {read + left_out} follow; it may have been cut short"
        )
    for count, said in (
        (left_out, "leaves out words that have spaces ({:,}), since no token of a sentence has any"),
        (again, "has words on more than one line ({:,}); the last line of each counts"),
    ):
        if count:
            warnings.warn(f"{path}: {said.format(count)}", stacklevel=3)
    return Vectors(list(rows), np.frombuffer(table, np.float32).reshape(len(rows), dimension))


def _parse(where: str, text: bytes, dimension: int) -> tuple[str, np.ndarray]:
    """The word of a line and its numbers."""
    start, _, rest = text.partition(b" ")
    try:
        word = start.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: {not_utf8(error)}") from None
    if word in ("", PADDING):
        raise UserError(f"{where}: begins with {word or 'a space'}, which is not a word; remove the line")
    try:
        with np.errstate(over="ignore"):
            vector = np.fromstring(rest, np.float32, sep=" ")
    except (ValueError, DeprecationWarning):
        vector = np.zeros(0, np.float32)
    if vector.size != dimension or not np.isfinite(vector).all():
        raise UserError(f"{where}: has not {dimension} finite numbers after its word, as others have")
    return word, vector


class Vocabulary(NamedTuple):
    """The words of a table of vectors, and how sentences are read: sentence-transformers' `WhitespaceTokenizer`."""

    words: Sequence[str]  # V, in the order of the table's rows
    lower_case: bool = False  # sentences are put into lower case first
    stop_words: frozenset[str] = frozenset()  # left out


def read_vocabulary(path: Path) -> Vocabulary:
    """Reads the file of a `WhitespaceTokenizer`."""
    fields = read_json(path)
    for name in ("vocab", "stop_words"):
        if not isinstance(fields.get(name), list) or not all(isinstance(word, str) for word in fields[name]):
            raise UserError(f"{path}: {name} is {fields.get(name)!r:.60}, not a list of words")
    return Vocabulary(fields["vocab"], fields.get("do_lower_case") is True, frozenset(fields["stop_words"]))


class WordTokenizer(Tokenizer):
    """Sentences to the numbers of their words; there are no special tokens, and a sentence may be empty.

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

    def tokenize(self, sentences: Sequence[Any], max_length: int) -> tuple[list[np.ndarray], dict[int, int]]:
        """The numbers of the words; the rows of sentences that were cut at `max_length` known words, and their loss."""
        numbered = [self._words_of(sentence) for sentence in sentences]
        cut = {row: len(numbers) - max_length for row, numbers in enumerate(numbered) if len(numbers) > max_length}
        return [np.array(numbers[:max_length], np.int32) for numbers in numbered], cut

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
        """The bytes that `save` writes, as sentence-transformers reads them."""
        words, lower_case, stop_words = self._vocabulary
        fields = {"vocab": list(words), "stop_words": sorted(stop_words), "do_lower_case": lower_case}
        return json.dumps(fields).encode()


def read_word_embeddings(folder: Path) -> tuple[Vocabulary, np.ndarray, int]:
    """The words of a module's folder, their vectors (V, D) float32, and the most words of a sentence."""
    fields = read_json(folder / FILE)
    kind, length = str(fields.get("tokenizer_class")), fields.get("max_seq_length", 1_000_000)
    if kind.rpartition(".")[2] != "WhitespaceTokenizer":
        raise UserError(f"{folder / FILE}: tokenizer_class is {kind:.80}; only WhitespaceTokenizer is supported")
    if type(length) is not int or length < 3:
        raise UserError(f"{folder / FILE}: max_seq_length is {length!r:.60}; it must be a whole number, 3 or more")
    vocabulary = read_vocabulary(folder / WORDS_FILE)
    tensors, path = read_weights(folder)
    table = np.array(tensor_of(tensors, TENSOR, (len(vocabulary.words), None), str(path)))
    return vocabulary, table, length


def write_word_embeddings(folder: Path, vocabulary: Vocabulary, table: np.ndarray, max_length: int) -> None:
    """Writes the module's folder, which must exist and be empty."""
    fields = {"tokenizer_class": TOKENIZER, "update_embeddings": False, "max_seq_length": max_length}
    write_json(folder / FILE, fields)
    WordTokenizer(vocabulary).save(folder / WORDS_FILE)
    write_safetensors(folder / "model.safetensors", {TENSOR: table})
