"""Where a corpus's rows came from, and their texts, if these were kept."""

import itertools

import numpy as np

from simcse_jax.corpus.opened import Prepared
from simcse_jax.corpus.shards import TEXT
from simcse_jax.errors import UserError


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
    """The sentences of rows, as many as the row's source has, without prompts.

    Raises:
      UserError: when they were not kept, or their file is missing.
    """
    if not corpus.manifest.key["keep_text"]:
        raise UserError(f"{corpus.folder}: was prepared without its text; prepare it again with --keep-text")
    found: list[list[str]] = [[]] * len(rows)
    shards, within = corpus.shards_of(rows)
    for number in np.unique(shards).tolist():
        shard = corpus.manifest.shards[number]
        path, count = corpus.folder / (shard.file + TEXT), shard.rows * shard.columns
        try:
            ends = np.memmap(path, "<u8", "r", 0, (count + 1,))
            with open(path, "rb") as file:
                for place in np.flatnonzero(shards == number).tolist():
                    first = int(within[place]) * shard.columns
                    bounds = ends[first : first + shard.columns + 1].tolist()
                    file.seek(8 * (count + 1) + bounds[0])
                    text = file.read(bounds[-1] - bounds[0])
                    cuts = [bound - bounds[0] for bound in bounds]
                    found[place] = [text[a:b].decode() for a, b in itertools.pairwise(cuts)]
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read: {error}; copy it again") from None
    return found
