"""A shard: the tokens of some rows, one after another, and where each sentence begins.

A shard's file has these parts, each padded with zeros to a multiple of `ALIGN` bytes so that it can be mapped alone:

| part | type | contents |
| --- | --- | --- |
| tokens | uint16; uint32 for vocabularies beyond 65,536 | row 0: column 0, column 1, …; then row 1 |
| entries | (sentences + 1, 2) uint32 | the start of each sentence's tokens, and a checksum; the last entry is the end |
| labels | int8 | one per row; only in a corpus with labels |
| origins | uint32 | each row's number among the source rows that the shard covers; only if some were left out |

If a row has fewer hard negatives than other rows of its source, the missing columns have no tokens. Sentences always
have some, the special tokens.

Texts, if kept, are in a separate file NAME.text: the start of each sentence in bytes and the end of the last one, as
uint64; a checksum of each row, as uint32; then the sentences in UTF-8.
"""

import contextlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

ALIGN = 1 << 16  # bytes: the largest page size of common systems
ENTRY = 8  # bytes of the index per sentence
MOST_TOKENS = 2**32 - 1  # in a shard, so that its index fits uint32
TEXT = ".text"
NEGATIVES = 2  # the first column of hard negatives, which rows may lack
BEGIN, LABEL = 0x9E3779B9, 0x85EBCA6B  # checksums' initial value, and an odd factor for labels


class Parts(NamedTuple):
    """Offsets of the parts of a shard's file, in bytes."""

    tokens: int
    entries: int
    labels: int
    origins: int
    end: int


def parts(tokens: int, width: int, rows: int, sentences: int, labels: bool, origins: bool) -> Parts:
    """The offsets for these numbers of tokens (of `width` bytes), rows and sentences, with or without further parts."""
    sizes = tokens * width, (sentences + 1) * ENTRY, rows * labels, 4 * rows * origins
    starts = np.cumsum([0, *(-(-size // ALIGN) * ALIGN for size in sizes)]).tolist()
    return Parts(*starts)


def token_type(vocabulary: int) -> np.dtype:
    """The token type for a vocabulary of this size."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


def weights(length: int) -> np.ndarray:
    """(length,) uint32, odd: a checksum's factor for each position, the low bits of SplitMix64's numbers."""
    mixed = (np.arange(1, length + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).astype(np.uint32) | np.uint32(1)


def checksums(ids: np.ndarray, mask: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """(…) uint32: BEGIN + Σ_t (id_t + 1) w_t modulo 2³² of each sentence. A single changed token always changes it.

    It starts from a constant, so zeros from a bad disk are never a valid index entry.

    Args:
      ids, mask: (…, T) token ids, and which of them to include.
      factors: (T,), see `weights`.
    """
    terms = (ids.astype(np.uint32) + np.uint32(1)) * factors
    return np.asarray(np.sum(terms, axis=-1, dtype=np.uint32, where=mask) + np.uint32(BEGIN))


def label_terms(labels: np.ndarray) -> np.ndarray:
    """(…) uint32: what a row's label adds to its sentences' checksums; different for each label."""
    return labels.astype(np.uint32) * np.uint32(LABEL)


def text_checksum(sentences: Sequence[bytes]) -> int:
    """CRC-32 of a row's sentences; not 0 for empty ones, unlike zeros from a bad disk."""
    return zlib.crc32(b"\0".join(sentences), 1)


class ShardWriter:
    """Writes a shard's rows to a file as they arrive, keeping only its index in memory."""

    def __init__(self, path: Path, token: np.dtype, longest: int, keep_text: bool):
        """Begins a new file.

        Args:
          path: of the file; texts go to the same name with `.text`.
        """
        self._token, self._factors = token, weights(longest)
        self._file, self._texts = open(path, "wb"), open(f"{path}{TEXT}.body", "w+b") if keep_text else None
        self._index: list[np.ndarray] = []
        self._ends: list[np.ndarray] = []  # of texts, in bytes
        self._sums: list[np.ndarray] = []  # of rows of texts
        self._labels: list[np.ndarray] = []
        self._origins: list[np.ndarray] = []
        self._text = Path(f"{path}{TEXT}")
        self.tokens = self.sentences = self.rows = self._text_bytes = 0
        self.histogram = np.zeros((0, longest + 1), np.int64)  # sentences of each length, by column

    def add(
        self,
        columns: Sequence[Sequence[np.ndarray]],
        labels: Sequence[int] | None,
        origins: Sequence[int],
        texts: Sequence[Sequence[str]],
    ) -> None:
        """Writes R rows of C columns.

        Args:
          columns: C columns of R arrays of token ids.
          origins: R row numbers in the source, counted from the shard's first.
          texts: C columns of R sentences; used only if texts are kept.
        """
        rows, width = len(columns[0]), len(columns)
        if not rows:
            return
        sentences = [column[row] for row in range(rows) for column in columns]
        lengths = np.fromiter(map(len, sentences), np.int64, rows * width)
        self.add_tokens(
            np.concatenate(sentences), lengths, width, None if labels is None else np.array(labels, np.int8)
        )
        self._origins.append(np.array(origins, np.uint32))
        if self._texts:
            encoded = [column[row].encode() for row in range(rows) for column in texts]
            self._ends.append(self._text_bytes + np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded))))
            of_rows = (encoded[at : at + width] for at in range(0, len(encoded), width))
            self._sums.append(np.fromiter(map(text_checksum, of_rows), np.uint32, rows))
            self._texts.write(b"".join(encoded))
            self._text_bytes = int(self._ends[-1][-1])

    def add_tokens(self, flat: np.ndarray, lengths: np.ndarray, width: int, labels: np.ndarray | None = None) -> None:
        """Writes the tokens and labels of R rows of C columns.

        Args:
          flat: the tokens of all sentences, concatenated.
          lengths: (R · C,) the sentences' numbers of tokens.
        """
        ends = np.cumsum(lengths)
        starts = ends - lengths
        # Sums of single sentences are differences of running sums; both are modulo 2³².
        place = np.arange(len(flat)) - np.repeat(starts, lengths)
        sums = np.zeros(len(flat) + 1, np.uint32)
        np.cumsum((flat.astype(np.uint32) + np.uint32(1)) * self._factors[place], dtype=np.uint32, out=sums[1:])
        sentence_sums = sums[ends] - sums[starts] + np.uint32(BEGIN)
        if labels is not None:
            sentence_sums += np.repeat(label_terms(labels), width)
            self._labels.append(labels)
        self._index.append(np.stack([(self.tokens + starts).astype(np.uint32), sentence_sums], axis=1))
        self._file.write(flat.astype(self._token).tobytes())
        counts = [np.bincount(lengths[column::width], minlength=len(self._factors) + 1) for column in range(width)]
        self.histogram = np.stack(counts) + (self.histogram if len(self.histogram) else 0)
        self.tokens += len(flat)
        self.sentences += len(lengths)
        self.rows += len(lengths) // width

    def finish(self, source_rows: int) -> bool:
        """Writes what follows the tokens, and syncs to the disk; returns whether the file has origins."""
        end = np.array([[self.tokens, 0]], np.uint32)
        has_origins = self.rows < source_rows
        tail = [np.concatenate([*self._index, end]).astype("<u4")]
        tail += [np.concatenate(self._labels)] if self._labels else []
        tail += [np.concatenate(self._origins).astype("<u4")] if has_origins and self._origins else []
        self._pad()
        for part in tail:
            self._file.write(part.tobytes())
            self._pad()
        self._close(self._file)
        if self._texts:
            self._texts.seek(0)
            with open(self._text, "wb") as file:
                file.write(np.concatenate([np.zeros(1, np.int64), *self._ends]).astype("<u8").tobytes())
                file.write(np.concatenate([np.zeros(0, np.uint32), *self._sums]).astype("<u4").tobytes())
                while chunk := self._texts.read(1 << 20):
                    file.write(chunk)
                self._close(file)
            self.close()
        return has_origins

    def _pad(self) -> None:
        self._file.write(bytes(-self._file.tell() % ALIGN))

    def _close(self, file: IO[bytes]) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def close(self) -> None:
        """Closes the files, and removes what only helped to write them."""
        with contextlib.ExitStack() as job:  # each in any case: on a full disk closing fails
            if self._texts:
                job.callback(Path(f"{self._text}.body").unlink, missing_ok=True)
                job.callback(self._texts.close)
            job.callback(self._file.close)
