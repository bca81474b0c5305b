"""Epochs in whose batches no two rows have a text in common: rows that meet an equal text change their places."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from simcse_jax.data.draws import place_generator

TRIES, FEWEST = 2, 2**16  # places tried in an epoch: for each of its rows, and in addition


def hashed(rows: Iterable[Sequence[str]], columns: int) -> np.ndarray:
    """(N, C) int32, equal for equal texts, -1 for the columns that a row lacks: those that are empty or not there.

    Only a hash of 64 bits is held of each text, so a corpus may be beyond memory; texts with equal ones are kept apart.
    """

    def all_hashes() -> Iterable[int]:
        for row in rows:
            for text in row:
                yield int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) if text else 0
            for _ in range(columns - len(row)):
                yield 0

    found = np.fromiter(all_hashes(), np.uint64).reshape(-1, columns)
    numbers = np.unique(found, return_inverse=True)[1].reshape(found.shape)
    return np.where(found > 0, numbers, -1).astype(np.int32)


def kept_apart(order: np.ndarray, texts: np.ndarray, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """The order of an epoch without two rows of one batch that have a text in common, in whatever columns.

    A row with a text of an earlier row of its batch changes places with a random row, if neither then meets an equal
    text, or else tries again. The rows after the last whole batch count as a batch. No row is lost, and nearly all keep
    their places. A text in more rows than there are batches stays in several rows of some.

    Args:
      order: (N,) the rows of the epoch.
      texts: (M, C) int32 numbers of all rows' texts, equal for equal texts, below 0 where a row has none. A text may be
        in several columns of its row.

    Returns:
      (N,), a function of the arguments alone.
    """
    own = _repeated(texts[order])
    found = _look(own, batch_size)
    if not found.rows.size:
        return order
    order, met = order.copy(), found.rows.tolist()
    held = dict(zip(found.keys.tolist(), found.counts.tolist(), strict=True))

    def of(row: int) -> list[int]:
        return [text * found.stride for text in own[row].tolist() if text >= 0]

    def is_settled(row: int, other: int) -> bool:
        """Whether a row meets no equal text any more, for which it may have changed places."""
        here, there, ours = row // batch_size, other // batch_size, of(row)
        if all(held[text + here] == 1 for text in ours):
            return True
        if any(held.get(text + there) for text in ours):
            return False
        theirs = of(other)
        if any(held.get(text + here) for text in theirs):
            return False
        for moved, old, new in (ours, here, there), (theirs, there, here):
            for text in moved:
                held[text + old] -= 1
                held[text + new] = 1
        for array in order, own:
            array[[row, other]] = array[[other, row]]
        return True

    draw, tries = place_generator(seed, epoch), TRIES * len(order) + FEWEST
    while met and tries > 0:
        tries -= len(met)
        others = draw.integers(len(order), size=len(met)).tolist()
        met = [row for row, other in zip(met, others, strict=True) if not is_settled(row, other)]
    return order


def left_together(order: np.ndarray, texts: np.ndarray, batch_size: int) -> list[str]:
    """A line about the rows of an epoch that could not be kept apart; none if all are."""
    own = _repeated(texts[order])
    count, batches = len(_look(own, batch_size).rows), len(order) // batch_size
    if not count:
        return []
    most = int(np.bincount(own[own >= 0]).max())
    return [
        f"data.no_duplicates: {count:,} of the {len(order):,} rows of the first epoch are in a batch with an equal "
        f"text all the same: a text is in up to {most:,} rows, and there are {batches:,} batches"
    ]


class _Batches(NamedTuple):
    """What the batches of an epoch have of its repeated texts."""

    rows: np.ndarray  # (R,) the places of rows with a text of an earlier row of their batch
    keys: np.ndarray  # (K,) text · stride + batch, of each text that a batch has
    counts: np.ndarray  # (K,) in how many of its rows
    stride: int


def _look(own: np.ndarray, batch_size: int) -> _Batches:
    """`own` as of `_repeated`."""
    stride = -(-len(own) // batch_size)
    rows, columns = np.nonzero(own >= 0)
    keys = own[rows, columns] * stride + rows // batch_size
    each, first, counts = np.unique(keys, return_index=True, return_counts=True)  # the first places in row order
    return _Batches(np.unique(np.delete(rows, first)), each, counts, stride)


def _repeated(own: np.ndarray) -> np.ndarray:
    """(N, C) int64: the texts of an epoch's rows (N, C) that several rows have, once for each row; else -1."""
    own = np.sort(own.astype(np.int64), axis=1)
    own[:, 1:][own[:, 1:] == own[:, :-1]] = -1
    counts = np.bincount(own[own >= 0], minlength=1)
    return np.where((own >= 0) & (counts[own] > 1), own, -1)
