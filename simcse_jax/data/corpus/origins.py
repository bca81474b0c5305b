"""Where a corpus's rows came from, and their texts, if these were kept."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from simcse_jax.data.corpus.manifest import REPAIR, Shard, check_sizes
from simcse_jax.data.corpus.opened import Prepared
from simcse_jax.data.corpus.shards import NEGATIVES, text_checksum
from simcse_jax.data.corpus.stamps import size_of
from simcse_jax.errors import UserError, why


def origins(corpus: Prepared, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sources of rows, as numbers in `manifest.sources`, and the rows' numbers in them, from 0; both (B,) int64.

    Raises:
      UserError: naming a shard that has a number which cannot be; a wrong one that can be is found by `--verify`.
    """
    sources, found = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    shards, within = corpus.shards_of(rows)
    for number in np.unique(shards).tolist():
        shard, own = corpus.manifest.shards[number], shards == number
        sources[own], found[own] = shard.source, shard.first + within[own]
        if shard.origins:
            start = shard.parts(corpus.manifest.token_bytes, corpus.manifest.labels).origins
            path = corpus.folder / shard.file
            listed = np.memmap(path, "<u4", "r", start, (shard.rows,))
            numbers = listed[within[own]].astype(np.int64)
            if (numbers < within[own]).any() or (numbers >= shard.source_rows).any():
                raise corpus.damaged(number)
            found[own] = shard.first + numbers
    return sources, found


def texts(corpus: Prepared, rows: np.ndarray) -> list[list[str]]:
    """The sentences of rows, as many as the row has, without prompts.

    Raises:
      UserError: when they were not kept, or naming their file, when it is missing, cut or changed.
    """
    if not corpus.manifest.key["keep_text"]:
        raise UserError(f"{corpus.folder}: was prepared without its text; prepare it again with --keep-text")
    found: list[list[str]] = [[]] * len(rows)
    shards, within = corpus.shards_of(rows)
    for number in np.unique(shards).tolist():
        shard = corpus.manifest.shards[number]
        own = np.flatnonzero(shards == number)
        path = corpus.folder / shard.files[1].name
        if size_of(path) is None:
            raise UserError(
                f"{path}: missing; a copy in data.local_cache has no text, so name the corpus itself, or give the "
                "command again that prepared it"
            )
        check_sizes(corpus.folder, shard.files[1:])
        for place, texts in zip(own.tolist(), _texts_of(corpus.folder, shard, within[own].tolist()), strict=True):
            found[place] = texts
    return found


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
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
    except (ValueError, OverflowError):  # a checksum, or where a sentence begins
        raise UserError(f"{path}: was changed since it was written; {REPAIR}") from None
