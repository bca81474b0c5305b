"""The source of each turn of an epoch, and its earlier turns: functions of only (seed, epoch, place).

A turn is a row, or a whole batch of one source. An epoch's turns are divided among the sources. A source with more
turns than rows is read again in another order; one with fewer continues in the next epoch where it stopped.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simcse_jax.data.draws import permutation

TURNS, REREAD = 4, 5  # purposes, in addition to those of `data.draws`


def share_out(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """The number of turns of each source: its share of `total`, rounded down.

    The turns that are left go to the sources with the largest fractions, the first of equals.
    """
    exact = total * np.array(weights, np.float64) / sum(weights)
    turns = np.floor(exact).astype(np.int64)
    first = np.argsort(turns - exact, kind="stable")[: total - turns.sum()]
    turns[first] += 1
    return tuple(turns.tolist())


class Mixture(NamedTuple):
    """The number of turns of each of K sources in an epoch, in random order."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """The turns of an epoch."""
        return sum(self.counts)

    def times(self, sizes: Sequence[int]) -> list[float]:
        """How often a row of each source is read in an epoch, for sources of these sizes."""
        return [count / size for count, size in zip(self.counts, sizes, strict=True)]

    def turns(self, seed: int, epoch: int, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The source of each turn, and the turn's number among all turns of that source, both (N,) int64.

        A source's turns in an epoch have the numbers after those of the epoch before, in any order. `places` are (N,)
        positions in the epoch, from 0 and below `total`.
        """
        counts = np.array(self.counts, np.int64)
        ends = np.cumsum(counts)
        slots = permutation(self.total, seed, TURNS, epoch)(places)
        source = np.searchsorted(ends, slots, side="right")
        return source, epoch * counts[source] + slots - (ends - counts)[source]

    def in_order(self, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """As `turns` for a whole epoch, but with ascending numbers for each source, both (total,) int64."""
        counts, turns = np.array(self.counts, np.int64), np.arange(self.total)
        source, _ = self.turns(seed, epoch, turns)
        place = np.empty_like(source)
        place[np.argsort(source, kind="stable")] = turns
        return source, epoch * counts[source] + place - (np.cumsum(counts) - counts)[source]

    def rows(self, sizes: Sequence[int], seed: int, epoch: int, places: np.ndarray) -> np.ndarray:
        """(N,) int64: the row of each turn, counted through all sources."""
        of, number = self.turns(seed, epoch, places)
        again, place = np.divmod(number, np.array(sizes, np.int64)[of])
        starts = np.cumsum([0, *sizes])
        rows = np.empty(len(places), np.int64)
        for source in np.unique(of).tolist():
            for time in np.unique(again[of == source]).tolist():
                here = (of == source) & (again == time)
                rows[here] = starts[source] + permutation(sizes[source], seed, REREAD, time, source)(place[here])
        return rows
