"""A prepared corpus, opened: tokens of any rows, gathered from memory-mapped files, their sources and their texts."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simcse_jax.data.corpus.manifest import REPAIR, Shard, check_sizes, joined, read_manifest
from simcse_jax.data.corpus.mapped_files import FileRange, Mapped
from simcse_jax.data.corpus.shards import BEGIN, ENTRY, NEGATIVES, checksums, label_terms, text_checksum, weights
from simcse_jax.data.corpus.shared_folder import size_of
from simcse_jax.data.tokens import padded_length
from simcse_jax.errors import UserError, system_message


class Sentences(NamedTuple):
    """Locations of the sentences of B rows, C each."""

    starts: np.ndarray  # (B, C) int64: the first token's position among all tokens
    lengths: np.ndarray  # (B, C) int64
    sums: np.ndarray  # (B, C) uint32: checksums of the tokens alone
    shards: np.ndarray  # (B, 1) the rows' shards; (B, C) if each sentence is in a row of its own
    empty: np.ndarray  # (B, C) bool: an empty sentence, for a column that the row or its source lacks
    present: np.ndarray  # (B, C) bool: False for empty sentences, and for an anchor used as its own positive

    def part(self, rows: slice) -> "Sentences":
        """Some of the rows."""
        return Sentences(*(array[rows] for array in self))


class Prepared:
    """N rows of C columns. Opening reads only the manifests."""

    def __init__(self, folder: Path, *further: Path):
        """Opens one corpus on a disk, or several whose rows follow one another."""
        manifests = {path: read_manifest(path) for path in (folder, *further)}
        for path, manifest in manifests.items():
            check_sizes(path, (shard.files[0] for shard in manifest.shards))  # texts are not read
        self.folder, self._manifests = folder, list(manifests.values())
        self.manifest = joined(self._manifests)
        self.sizes = tuple(manifest.rows for manifest in self._manifests) if further else ()  # rows of each of several
        self._paths = [path / shard.file for path, manifest in manifests.items() for shard in manifest.shards]
        shards, width = self.manifest.shards, self.manifest.token_bytes
        places = [shard.parts(width, self.manifest.labels) for shard in shards]
        paired = list(zip(self._paths, places, strict=True))
        self._tokens = Mapped([FileRange(file, parts.tokens, parts.entries - parts.tokens) for file, parts in paired])
        self._index = Mapped([FileRange(file, parts.entries, parts.labels - parts.entries) for file, parts in paired])
        self._labels = Mapped([FileRange(file, parts.labels, parts.origins - parts.labels) for file, parts in paired])
        self._ids = self._tokens.array(np.dtype(f"<u{width}"))
        self._entries = self._index.array(np.dtype("<u4")).reshape(-1, 2)
        self._label = self._labels.array(np.dtype("i1"))
        self._first_row = _starts([shard.rows for shard in shards])  # (S + 1,)
        self._first_token = _starts([(parts.entries - parts.tokens) // width for parts in places])
        self._first_entry = _starts([(parts.labels - parts.entries) // ENTRY for parts in places])
        self._first_label = _starts([parts.origins - parts.labels for parts in places])
        self._width = np.array([shard.columns for shard in shards])
        self._size = np.array([shard.tokens for shard in shards])
        self._factors = weights(self.length)
        self._empty = np.zeros(self.length, np.int32)
        special = self.manifest.key["special_tokens"]
        self._empty[: len(special)] = special
        self._special = len(special)

    def __len__(self) -> int:
        return self.manifest.rows

    @property
    def num_columns(self) -> int:
        """The sentences of a row."""
        return self.manifest.columns

    @functools.cached_property
    def fewest_columns(self) -> int:
        """The number of sentences in the row with the fewest."""
        return self.manifest.fewest

    @property
    def has_text(self) -> bool:
        """Whether the text of all rows was kept."""
        return all(manifest.key["keep_text"] for manifest in self._manifests)

    def file(self, shard: int) -> Path:
        """A shard's file."""
        return self._paths[shard]

    def counts(self, times: Sequence[float] = ()) -> np.ndarray:
        """(C, L + 1): the sentences of each length, by column; `times` is how often each corpus's rows are read."""
        return joined(self._manifests, times).counts

    @property
    def mixed(self) -> bool:
        """Whether some rows lack columns."""
        return self.fewest_columns < self.num_columns

    @functools.cached_property  # every batch uses it several times
    def length(self) -> int:
        """T of all batches: the longest sentence's tokens, rounded up to a multiple of 8, at most `max_length`."""
        longest = int(np.flatnonzero(self.manifest.counts.sum(axis=0))[-1])
        return padded_length(longest, self.manifest.key["max_length"])

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """The places for a sentence of each column, at most T; () if all have T."""
        if len(set(self.manifest.lengths)) == 1 or self.num_columns == 1:
            return ()
        longest = [int(np.flatnonzero(counts)[-1]) for counts in self.manifest.counts]
        return tuple(padded_length(length, self.length) for length in longest)

    def locate(self, rows: np.ndarray) -> Sentences:
        """Locates sentences, by row numbers (B,), or (B, C) for a row per column.

        In a source with one column, each row is its own positive. Other missing columns are empty sentences.
        """
        columns = np.arange(self.num_columns)
        by_column = rows[:, None] if rows.ndim == 1 else rows  # (B, 1) or (B, C)
        shard, within = self.shards_of(by_column)
        width = self._width[shard]
        column = np.where(columns < width, columns, 0) if rows.ndim == 1 else np.zeros_like(by_column)
        entry = self._first_entry[shard] + within * width + column
        self._index.will_need(*_ranges((entry - column)[:, : by_column.shape[1]], width + 1, ENTRY))
        starts = self._entries[entry, 0].astype(np.int64)
        ends = self._entries[entry + 1, 0].astype(np.int64)
        lengths = ends - starts
        self._refuse((lengths < 0) | (lengths > self.length) | (ends > self._size[shard]), shard)
        lacking = (lengths == 0) & (columns >= NEGATIVES) & (self._special > 0)
        if rows.ndim == 1:
            present = (columns < width) & ~lacking
            empty = ~present & ~((columns == 1) & (width == 1))
        else:
            present, empty = np.ones(lengths.shape, bool), np.zeros(lengths.shape, bool)
        sums = self._entries[entry, 1]
        if self.manifest.labels:  # these are checked with the tokens
            place = self._first_label[shard] + within
            self._labels.will_need(*_ranges(place, 1, 1))
            sums = sums - label_terms(self._label[place])
        self._refuse(lacking & empty & (sums != BEGIN), shard)  # no tokens have BEGIN, unlike zeros from a bad disk
        lengths = np.where(empty, self._special, lengths)
        return Sentences(starts + self._first_token[shard], lengths, sums, shard, empty, present)

    def will_need(self, sentences: Sentences) -> None:
        """Asks the system to read these sentences from the disk, without waiting."""
        runs = sentences.shards.shape[1]  # a row's sentences are adjacent, unless each comes from its own row
        starts, ends = sentences.starts[:, :runs], sentences.starts + np.where(sentences.empty, 0, sentences.lengths)
        ends = ends if runs > 1 else ends.max(axis=1, keepdims=True)
        self._tokens.will_need(*_ranges(starts, ends - starts, self.manifest.token_bytes))

    def gather(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
        """The sentences' token ids and mask, both (B, C, T) int32; ids are 0 where the mask is.

        Raises:
          UserError: naming a shard whose tokens or labels were changed since it was written.
        """
        place = np.arange(self.length)
        mask = place < sentences.lengths[..., None]
        read = mask & ~sentences.empty[..., None]
        ids = np.zeros(mask.shape, np.int32)
        ids[read] = self._ids.take((sentences.starts[..., None] + place)[read])
        self._refuse((checksums(ids, read, self._factors) != sentences.sums) & ~sentences.empty, sentences.shards)
        if sentences.empty.any():
            ids = np.where(sentences.empty[..., None], self._empty, ids)
        return ids, mask.astype(np.int32)

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """(B,) int32 labels of rows, if the corpus has labels; `gather` of the same rows verifies them."""
        shard, within = self.shards_of(rows)
        return self._label[self._first_label[shard] + within].astype(np.int32)

    def shards_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The shard of each row, and the row's number in it."""
        shard = np.searchsorted(self._first_row, rows, side="right") - 1
        return shard, rows - self._first_row[shard]

    def _refuse(self, wrong: np.ndarray, shards: np.ndarray) -> None:
        """Refuses sentences that are wrong (B, C), naming a shard of theirs."""
        if wrong.any():
            raise self.damaged(int(np.broadcast_to(shards, wrong.shape)[wrong][0]))

    def damaged(self, shard: int) -> UserError:
        """The error for a damaged shard."""
        return UserError(f"{self._paths[shard]}: was changed since it was written; {REPAIR}")


def _starts(counts: list[int]) -> np.ndarray:
    return np.cumsum([0, *counts])


def _ranges(first: np.ndarray, count: np.ndarray | int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The byte ranges of `count` elements of `size` bytes each: starts and ends."""
    starts = first.ravel() * size
    return starts, starts + np.ravel(count) * size


def origins(corpus: Prepared, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sources of rows, as indices into `manifest.sources`, and the row numbers there, from 0; both (B,) int64.

    Raises:
      UserError: naming a shard with an impossible row number; only `--verify` finds wrong but possible ones.
    """
    sources, numbers_in_source = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    shards, within = corpus.shards_of(rows)
    for number in np.unique(shards).tolist():
        shard, here = corpus.manifest.shards[number], shards == number
        sources[here], numbers_in_source[here] = shard.source, shard.first + within[here]
        if shard.origins:
            start = shard.parts(corpus.manifest.token_bytes, corpus.manifest.labels).origins
            path = corpus.file(number)
            listed = np.memmap(path, "<u4", "r", start, (shard.rows,))
            numbers = listed[within[here]].astype(np.int64)
            if (numbers < within[here]).any() or (numbers >= shard.source_rows).any():
                raise corpus.damaged(number)
            numbers_in_source[here] = shard.first + numbers
    return sources, numbers_in_source


def texts(corpus: Prepared, rows: np.ndarray) -> list[list[str]]:
    """The sentences of rows without prompts, without columns that a row lacks; refused if the text was not kept."""
    if not corpus.has_text:
        raise UserError(f"{corpus.folder}: was prepared without its text; prepare it again with --keep-text")
    by_row: list[list[str]] = [[]] * len(rows)
    shards, within = corpus.shards_of(rows)
    for number in np.unique(shards).tolist():
        shard = corpus.manifest.shards[number]
        rows_here = np.flatnonzero(shards == number)
        folder = corpus.file(number).parent
        path = folder / shard.files[1].name
        if size_of(path) is None:
            raise UserError(
                f"{path}: missing; a copy in data.local_cache may have no text, so name the corpus itself, or give the "
                "command again that prepared it"
            )
        check_sizes(folder, shard.files[1:])
        for place, texts in zip(rows_here.tolist(), _texts_of(folder, shard, within[rows_here].tolist()), strict=True):
            by_row[place] = texts
    return by_row


def _texts_of(folder: Path, shard: Shard, rows: list[int]) -> Iterator[list[str]]:
    path, count = folder / shard.files[1].name, shard.rows * shard.columns
    try:
        ends = np.memmap(path, "<u8", "r", 0, (count + 1,))
        sums = np.memmap(path, "<u4", "r", 8 * (count + 1), (shard.rows,))
        with open(path, "rb") as file:
            for row in rows:
                first = row * shard.columns
                bounds = ends[first : first + shard.columns + 1].astype(np.int64).tolist()
                if sorted(bounds) != bounds or bounds[-1] > shard.text_bytes:
                    raise ValueError
                file.seek(8 * (count + 1) + 4 * shard.rows + bounds[0])
                sentences = [file.read(end - start) for start, end in itertools.pairwise(bounds)]
                if text_checksum(sentences) != sums[row]:
                    raise ValueError
                while len(sentences) > NEGATIVES and not sentences[-1]:
                    sentences.pop()
                yield [sentence.decode() for sentence in sentences]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {system_message(error)}") from None
    except (ValueError, OverflowError):  # a wrong checksum or position
        raise UserError(f"{path}: was changed since it was written; {REPAIR}") from None
