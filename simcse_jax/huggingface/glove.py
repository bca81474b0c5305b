"""Reads word vectors from text, in the format of GloVe and word2vec.

A line has a word and its D numbers, with single spaces in between. The first line may have the number of words and D,
as word2vec and fastText write it. The file may be compressed with gzip.

Some lines of glove.840B.300d have spaces within the word, such as "at name@domain.com". No token of a sentence can be
such a word, so these lines are left out; they are those with too many parts of which one is not a number. It also
has a word on two lines, of which the last one counts, as in sentence-transformers.
"""

import codecs
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from simcse_jax.errors import UserError, why
from simcse_jax.huggingface.word_tokenizer import PADDING

BLOCK = 1 << 24  # bytes that are read at a time
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
LARGEST = float(np.finfo(np.float32).max)
HEADER = re.compile(rb"\d+ \d+")


class Vectors(NamedTuple):
    """The words of a file and their vectors, after a row of zeros for padding."""

    words: list[str]  # V
    table: np.ndarray  # (V, D) float32


class _Line(NamedTuple):
    number: int  # from 1
    text: bytes  # without the line's end


def read_glove(path: Path) -> Vectors:
    """Reads a file. Memory holds its numbers and words, and a few megabytes of its text.

    Warnings count the lines that are left out, and those of words that are there more than once.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is no regular file" if path.exists() else "no such file"
        raise UserError(f"{path}: {what}; name a file of word vectors, such as glove.6B.300d.txt")
    try:
        with _opened(path) as file:
            return _read(path, _blocks(file))
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read: {why(error)}") from None


def _opened(path: Path) -> io.BufferedIOBase:
    with open(path, "rb") as file:
        is_compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if is_compressed else open(path, "rb")


def _blocks(file: io.BufferedIOBase) -> Iterator[list[_Line]]:
    """The lines that are not empty, some thousand at a time; a byte-order mark is dropped."""
    rest, count = file.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8), 0
    while block := file.read(BLOCK):
        *texts, rest = (rest + block).split(b"\n")
        yield _numbered(texts, count)
        count += len(texts)
    yield _numbered(rest.split(b"\n"), count)


def _numbered(texts: Sequence[bytes], before: int) -> list[_Line]:
    lines = (_Line(number, text.rstrip(b" \r")) for number, text in enumerate(texts, before + 1))
    return [line for line in lines if line.text]


def _read(path: Path, blocks: Iterator[list[_Line]]) -> Vectors:
    dimension, announced, read, left_out = 0, 0, 0, 0  # the last two count lines
    rows: dict[str, int] = {PADDING: 0}  # of the table, by word
    table = np.zeros((0, 0), np.float32)
    for block in blocks:
        if not dimension and block:
            if HEADER.fullmatch(block[0].text):
                announced, dimension = map(int, block[0].text.split(b" "))
                del block[0]
            else:
                dimension = block[0].text.count(b" ")
            if not 2 <= dimension <= 1 << 16:
                raise UserError(
                    f"{path}: line 1: {dimension} numbers; a vector has 2 or more, after its word and a space"
                )
            table = np.zeros((1, dimension), np.float32)
        lines = [line for line in block if line.text.count(b" ") == dimension or _has_width(path, line, dimension)]
        left_out += len(block) - len(lines)
        if not lines:
            continue
        read += len(lines)
        places = [rows.setdefault(_word(path, line), len(rows)) for line in lines]
        if len(rows) > len(table):  # `resize` moves no memory where the system can extend it
            table.resize((max(2 * len(table), len(rows)), dimension), refcheck=False)
        table[places] = _parse(path, lines, dimension)  # of equal places the last one counts
    if not read:
        raise UserError(f"{path}: has no word vectors")
    if announced and announced != read + left_out:
        cure = "it may have been cut short" if read + left_out < announced else "correct or remove that line"
        raise UserError(f"{path}: line 1 announces {announced} words, but {read + left_out} follow; {cure}")
    for count, what in (
        (left_out, "leaves out words that have spaces ({:,}), since no token of a sentence has any"),
        (read - len(rows) + 1, "has words on more than one line ({:,}); the last line of each counts"),
    ):
        if count:
            warnings.warn(f"{path}: {what.format(count)}", stacklevel=3)
    table.resize((len(rows), dimension), refcheck=False)
    return Vectors(list(rows), table)


def _has_width(path: Path, line: _Line, dimension: int) -> bool:
    """Whether a line with another number of parts is to be read: no, if its word has spaces."""
    word, *parts = line.text.split(b" ")
    further = parts[:-dimension]
    if word and all(further) and not all(map(NUMBER.fullmatch, further)):
        return False
    _refuse(path, line.number, f"has {len(parts)} numbers, and others {dimension}")


def _word(path: Path, line: _Line) -> str:
    try:
        word = line.text.partition(b" ")[0].decode()
    except UnicodeDecodeError as error:
        _refuse(path, line.number, f"is not UTF-8 (byte 0x{error.object[error.start]:02x})")
    if not word:
        _refuse(path, line.number, "begins with a space, so it has no word")
    if word == PADDING:
        _refuse(path, line.number, f"has the word {PADDING}, which stands for padding; remove the line")
    return word


def _parse(path: Path, lines: Sequence[_Line], dimension: int) -> np.ndarray:
    """(L, D) numbers of L lines, each with D parts after its word."""
    text = b" ".join(line.text.partition(b" ")[2] for line in lines)
    try:
        with warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("error", DeprecationWarning)  # NumPy 2.0 warns of what is no number
            values = np.fromstring(text, np.float32, sep=" ")
    except (ValueError, DeprecationWarning):
        values = np.zeros(0, np.float32)
    if values.size != len(lines) * dimension or not np.isfinite(values).all():
        for line in lines:
            for part in line.text.split(b" ")[1:]:
                if not NUMBER.fullmatch(part) or abs(float(part)) > LARGEST:
                    _refuse(path, line.number, f"{part.decode(errors='replace')!r:.40} is no finite number")
        raise UserError(f"{path}: lines {lines[0].number} to {lines[-1].number}: not all parts are numbers")
    return values.reshape(-1, dimension)


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    raise UserError(f"{path}: line {number}: {what}")
