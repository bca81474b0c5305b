"""Epochs in whose batches no two rows have a text in common: rows that meet an equal text change their places."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from simcse_jax.data.draws import place_generator

TRIES, FEWEST = 2, 2**16  # places tried in an epoch: for each of its rows, and in addition


def hashed(rows: Iterable[Sequence[str]], columns: int) -> np.ndarray:
    """(N, C) int32: equal numbers for equal texts, and -1 for empty and missing columns.

    Only a hash of 64 bits is held of each text, so a corpus may be beyond memory; texts with equal ones are kept apart.
    """

    def all_hashes() -> Iterable[int]:
        for row in rows:
            for text in row:
                yield int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) if text else 0
            for _ in range(columns - len(row)):
                yield 0

    hashes = np.fromiter(all_hashes(), np.uint64).reshape(-1, columns)
    numbers = np.unique(hashes, return_inverse=True)[1].reshape(hashes.shape)
    return np.where(hashes > 0, numbers, -1).astype(np.int32)


def separate_duplicates(order: np.ndarray, texts: np.ndarray, batch_size: int, seed: int, epoch: int) -> np.ndarray:
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
    repeated = _repeated(texts[order])
    rows, held, stride = _find_clashes(repeated, batch_size)
    if not rows.size:
        return order
    order, met = order.copy(), rows.tolist()

    def of(row: int) -> list[int]:
        return [text * stride for text in repeated[row].tolist() if text >= 0]

    def is_settled(row: int, other: int) -> bool:
        """Whether the row meets no equal text in its batch, if necessary after changing places with another row."""
        here, target, ours = row // batch_size, other // batch_size, of(row)
        if all(held[text + here] == 1 for text in ours):
            return True
        if any(held.get(text + target) for text in ours):
            return False
        theirs = of(other)
        if any(held.get(text + here) for text in theirs):
            return False
        for moved, old, new in (ours, here, target), (theirs, target, here):
            for text in moved:
                held[text + old] -= 1
                held[text + new] = 1
        for array in order, repeated:
            array[[row, other]] = array[[other, row]]
        return True

    draw, tries = place_generator(seed, epoch), TRIES * len(order) + FEWEST
    while met and tries > 0:
        tries -= len(met)
        partners = draw.integers(len(order), size=len(met)).tolist()
        met = [row for row, other in zip(met, partners, strict=True) if not is_settled(row, other)]
    return order


def remaining_duplicates(order: np.ndarray, texts: np.ndarray, batch_size: int) -> list[str]:
    """A line about the rows of an epoch that could not be kept apart; none if all are."""
    repeated = _repeated(texts[order])
    count, batches = len(_find_clashes(repeated, batch_size)[0]), len(order) // batch_size
    if not count:
        return []
    most = int(np.bincount(repeated[repeated >= 0]).max())
    return [
        f"data.no_duplicates: {count:,} of the {len(order):,} rows of the first epoch are in a batch with an equal "
        f"text all the same: a text is in up to {most:,} rows, and there are {batches:,} batches"
    ]


def _find_clashes(texts: np.ndarray, batch_size: int) -> tuple[np.ndarray, dict[int, int], int]:
    """Texts that repeat in a batch; `texts` are those of `_repeated`.

    Returns:
      (R,) the places of rows with a text of an earlier row of their batch; in how many rows of a batch each text is, by
      text · stride + batch; the stride.
    """
    stride = -(-len(texts) // batch_size)
    rows, columns = np.nonzero(texts >= 0)
    keys = texts[rows, columns] * stride + rows // batch_size
    unique, first, counts = np.unique(keys, return_index=True, return_counts=True)  # the first places in row order
    return np.unique(np.delete(rows, first)), dict(zip(unique.tolist(), counts.tolist(), strict=True)), stride


def _repeated(texts: np.ndarray) -> np.ndarray:
    """(N, C) int64: the texts of an epoch's rows (N, C) that several rows have, once for each row; else -1."""
    texts = np.sort(texts.astype(np.int64), axis=1)
    texts[:, 1:][texts[:, 1:] == texts[:, :-1]] = -1
    counts = np.bincount(texts[texts >= 0], minlength=1)
    return np.where((texts >= 0) & (counts[texts] > 1), texts, -1)
