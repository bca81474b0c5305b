"""A prepared corpus, opened: tokens of any rows, gathered from memory-mapped files, their sources and their texts."""

import functools
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from simcse_jax.data.corpus.manifest import (
    NEGATIVES,
    REPAIR,
    check_sizes,
    fingerprint_of,
    read_manifest,
)
from simcse_jax.data.tokens import Lengths, Prompts, padded_length
from simcse_jax.errors import UserError, system_message

PAGE = mmap.PAGESIZE


class Sentences(NamedTuple):
    """Locations of the sentences of N rows, C each."""

    batches: np.ndarray  # (N,) the record batches of the rows
    bounds: np.ndarray  # (N, C + 1) where the sentences begin among the batch's tokens, and where the last one ends
    lengths: np.ndarray  # (N, C) the tokens of each, also of those in the place of missing ones
    present: np.ndarray  # (N, C) bool: False for columns that the row lacks

    def part(self, rows: slice) -> "Sentences":
        """Some of the rows."""
        return Sentences(*(array[rows] for array in self))


class Prepared:
    """N rows of C columns. Opening reads only the manifests, and where the files' parts are."""

    def __init__(self, *folders: Path):
        """Opens one corpus on a disk, or several of one tokenizer whose rows follow one another."""
        self.folders, self.manifests = folders, [read_manifest(folder) for folder in folders]
        self.shards = [shard for manifest in self.manifests for shard in manifest.shards]
        self._batches: list[Any] = []  # record batches
        self._maps: list[mmap.mmap] = []  # the file of each
        self._shard: list[int] = []
        self._tokens: list[np.ndarray] = []
        self._bounds: list[np.ndarray] = []  # where their sentences begin among their tokens
        places, widths, number = [], [], 0
        for folder, manifest in zip(folders, self.manifests, strict=True):
            check_sizes(folder, manifest.shards)
            for shard in manifest.shards:
                mapped, batches = _open(folder / shard.file)
                if sum(len(batch) for batch in batches) != shard.rows:
                    raise _damaged(folder / shard.file)
                begin = pa.py_buffer(mapped).address
                for batch in batches:
                    rows = batch.column("input_ids")
                    bounds, tokens = rows.values.offsets, rows.values.values
                    self._bounds.append(bounds.to_numpy())
                    self._tokens.append(tokens.to_numpy())
                    places.append([array.buffers()[1].address - begin for array in (bounds, tokens)])
                    widths.append(rows.type.list_size)
                self._batches += batches
                self._maps += [mapped] * len(batches)
                self._shard += [number] * len(batches)
                number += 1
        self._first = np.cumsum([0, *map(len, self._batches)])
        self._bounds_at, self._tokens_at = np.array(places, np.int64).T
        self._width, self._token_bytes = np.array(widths), np.array([tokens.itemsize for tokens in self._tokens])
        self._vocabulary = max(manifest.settings["vocabulary"] for manifest in self.manifests)
        self.settings = max(self.manifests, key=lambda manifest: manifest.columns).settings  # the first, if several are

    def __len__(self) -> int:
        return int(self._first[-1])

    @functools.cached_property
    def num_columns(self) -> int:
        """The sentences of a row."""
        return max(manifest.columns for manifest in self.manifests)

    @functools.cached_property
    def fewest_columns(self) -> int:
        """The number of sentences in the row with the fewest."""
        return min(manifest.fewest for manifest in self.manifests)

    @property
    def mixed(self) -> bool:
        """Whether some rows lack columns."""
        return self.fewest_columns < self.num_columns

    @property
    def sizes(self) -> tuple[int, ...]:
        """The rows of each of several corpora; () for one."""
        return tuple(manifest.rows for manifest in self.manifests) if len(self.manifests) > 1 else ()

    @property
    def has_text(self) -> bool:
        """Whether the text of all rows was kept."""
        return all(manifest.settings["keep_text"] for manifest in self.manifests)

    @property
    def prompts(self) -> tuple[Prompts, ...]:
        """The prompts of all sentences; () if there are none, or corpora have different ones."""
        first, *others = [manifest.prompts for manifest in self.manifests]
        return first if all(prompts == first for prompts in others) else ()

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all bytes."""
        return fingerprint_of(self.manifests)

    def counts(self, times: Sequence[float] = ()) -> np.ndarray:
        """(C, L + 1): the sentences of each length, by column; `times` is how often each corpus's rows are read."""
        longest = max(max(manifest.lengths) for manifest in self.manifests)
        counts = [manifest.counts(self.num_columns, longest) for manifest in self.manifests]
        return np.sum([count * of for count, of in zip(times or [1] * len(counts), counts, strict=True)], axis=0)

    @functools.cached_property  # every batch uses it several times
    def length(self) -> int:
        """T of all batches: the longest sentence's tokens, rounded up to a multiple of 8, at most `max_length`."""
        counts = self.counts()
        return padded_length(int(np.flatnonzero(counts.sum(axis=0))[-1]), counts.shape[1] - 1)

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """The places for a sentence of each column, at most T; () if all have T."""
        built = Lengths(*self.settings["max_length"])
        if built.anchor == built.positive or self.num_columns == 1:
            return ()
        return tuple(padded_length(int(np.flatnonzero(counts)[-1]), self.length) for counts in self.counts())

    def locate(self, rows: np.ndarray) -> Sentences:
        """Locates the sentences of rows (N,).

        In a source with one column, each row is its own positive. Other missing columns are empty sentences.
        """
        batches, within = self._find(rows)
        width = self._width[batches]
        first = within * width
        self._will_need(batches, self._bounds_at[batches] + 4 * first, 4 * (width + 1))
        place = first[:, None] + np.minimum(np.arange(self.num_columns + 1), width[:, None])
        of_rows = [self._bounds[batch][at] for batch, at in zip(batches.tolist(), place, strict=True)]
        bounds = np.array(of_rows, np.int64).reshape(place.shape)
        lengths = np.diff(bounds)
        most = np.array([len(self._tokens[batch]) for batch in batches.tolist()])
        present = lengths > 0
        wrong = (lengths < 0).any(axis=1) | (lengths > self.length).any(axis=1) | (bounds[:, -1] > most)
        self._refuse(wrong | (bounds[:, 0] < 0) | ~present[:, 0], batches)
        lengths[:, 1:2] = np.where(present[:, 1:2], lengths[:, 1:2], lengths[:, :1])
        lengths[:, NEGATIVES:][~present[:, NEGATIVES:]] = len(self.settings["special_tokens"])
        return Sentences(batches, bounds, lengths, present)

    def gather(self, sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
        """The sentences' token ids and mask, both (N, C, T) int32; ids are 0 where the mask is.

        Raises:
          UserError: naming a file with token ids that cannot be.
        """
        batches, bounds, lengths, present = sentences
        starts, ends = bounds[:, 0], bounds[:, -1]
        size = self._token_bytes[batches]
        self._will_need(batches, self._tokens_at[batches] + size * starts, size * (ends - starts))
        tokens = [
            self._tokens[batch][start:end]
            for batch, start, end in zip(batches.tolist(), starts.tolist(), ends.tolist(), strict=True)
        ]
        flat, place = np.concatenate(tokens), np.arange(self.length)
        ids = np.zeros((*lengths.shape, self.length), np.int32)
        ids[place < np.diff(bounds)[..., None]] = flat  # a row's sentences follow one another
        self._refuse((ids >= self._vocabulary).any(axis=(1, 2)), batches)
        alone = ~present[:, 1:2]  # its own positive
        ids[:, 1:2][alone] = ids[:, :1][alone]
        empty, special = np.zeros(self.length, np.int32), self.settings["special_tokens"]
        empty[: len(special)] = special
        ids[:, NEGATIVES:][~present[:, NEGATIVES:]] = empty
        return ids, (place < lengths[..., None]).astype(np.int32)

    def labels(self, rows: np.ndarray) -> np.ndarray:
        """(N,) int32 labels of rows, if the corpus has labels."""
        return np.array(self._values("label", rows), np.int32)

    def origins(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sources of rows, as indices into `shards`, and the row numbers there, from 0; both (N,) int64."""
        batches, _ = self._find(rows)
        return np.array(self._shard)[batches], np.array(self._values("row", rows), np.int64)

    def texts(self, rows: np.ndarray) -> list[list[str]]:
        """The sentences of rows without prompts, without columns that a row lacks; refused if the text was not kept."""
        if not self.has_text:
            raise UserError(f"{self.folders[0]}: was prepared without its text; prepare it again with --keep-text")
        return self._values("texts", rows)

    def _values(self, column: str, rows: np.ndarray) -> list[Any]:
        values = []
        for batch, row in zip(*(array.tolist() for array in self._find(rows)), strict=True):
            try:
                values.append(_value(self._batches[batch].column(column), row))
            except (KeyError, ValueError, pa.ArrowException):
                raise self._damaged(batch) from None
        return values

    def _find(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The record batch of each row, and the row's number in it."""
        batches = np.searchsorted(self._first, rows, side="right") - 1
        return batches, rows - self._first[batches]

    def _will_need(self, batches: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> None:
        """Asks the system to read these bytes of the batches' files, without waiting."""
        first = starts & -PAGE
        for batch, start, size in zip(batches.tolist(), first.tolist(), (starts + sizes - first).tolist(), strict=True):
            try:
                self._maps[batch].madvise(mmap.MADV_WILLNEED, start, size)
            except ValueError:  # beyond the file
                raise self._damaged(batch) from None

    def _refuse(self, wrong: np.ndarray, batches: np.ndarray) -> None:
        """Refuses rows that are wrong (N,), naming the file of one."""
        if wrong.any():
            raise self._damaged(int(batches[wrong][0]))

    def _damaged(self, batch: int) -> UserError:
        shard = self._shard[batch]
        of = np.repeat(np.arange(len(self.folders)), [len(manifest.shards) for manifest in self.manifests])
        return _damaged(self.folders[of[shard]] / self.shards[shard].file)


def _value(column: Any, row: int) -> Any:
    """A row's number or texts; refuses damaged offsets of texts, for which Arrow would end the process."""
    if not pa.types.is_list(column.type):
        return column[row].as_py()
    first, last = column.offsets[row : row + 2].to_pylist()
    if not 0 <= first <= last <= len(column.values):
        raise ValueError(first, last)
    texts = column.values[first:last]
    texts.validate(full=True)
    return texts.to_pylist()


def _open(path: Path) -> tuple[mmap.mmap, list[Any]]:
    """A file's bytes, and the record batches in them."""
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped.madvise(mmap.MADV_RANDOM)  # read-ahead would pull in whole files
        batches = list(pa.ipc.open_stream(pa.py_buffer(mapped)))
        for batch in batches:
            batch.validate()  # of sizes alone
        if any(batch.column(name).null_count for batch in batches for name in ("input_ids", *batch.schema.names)):
            raise _damaged(path)
    except (ValueError, KeyError, pa.ArrowException):
        raise _damaged(path) from None
    except OSError as error:
        if error.errno is None:  # pyarrow's, about the contents
            raise _damaged(path) from None
        raise UserError(f"{path}: cannot be read: {system_message(error)}") from None
    return mapped, batches


def _damaged(path: Path) -> UserError:
    return UserError(f"{path}: was changed since it was written; {REPAIR}")
