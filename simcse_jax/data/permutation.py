"""A permutation of row numbers that is computed, not stored: the order of an epoch of any corpus.

A Feistel network of alternating halves is a permutation of all numbers of b bits, whatever its round functions are
(Luby and Rackoff, 1988). Numbers that leave the range are sent through it again until they are back ("cycle walking",
Black and Rogaway, 2002); b is the least number of bits that can hold the range, so this takes two passes at most on
average.
"""

from typing import NamedTuple

import numpy as np

ROUNDS = 8
ORDER, SUBSET = 2, 3  # purposes, next to those of `data.draws.corpus_generator`
FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd, so products keep all bits


class Permutation(NamedTuple):
    """A permutation of 0 … size - 1, given by its keys."""

    size: int
    keys: tuple[int, ...]  # one for each round

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """(…) int64: the rows at these positions."""
        found = np.asarray(positions, np.uint64)
        if self.size < 2:
            return found.astype(np.int64)
        found = self._pass(found)
        outside = np.flatnonzero(found >= self.size)
        while outside.size:
            again = self._pass(found.flat[outside])
            found.flat[outside] = again
            outside = outside[again >= self.size]
        return found.astype(np.int64)

    def _pass(self, numbers: np.ndarray) -> np.ndarray:
        """The network once."""
        bits = (self.size - 1).bit_length()
        low = bits // 2
        halves = [numbers >> np.uint64(low), numbers & np.uint64((1 << low) - 1)]
        widths = bits - low, low
        for place, key in enumerate(self.keys):
            changed, other = place % 2, 1 - place % 2
            if widths[changed]:
                mixed = (halves[other] ^ np.uint64(key)) * FIRST
                mixed ^= mixed >> np.uint64(32)
                mixed *= SECOND
                halves[changed] = halves[changed] ^ (mixed >> np.uint64(64 - widths[changed]))
        return (halves[0] << np.uint64(low)) | halves[1]


def permutation(size: int, seed: int, purpose: int, number: int = 0, *others: int) -> Permutation:
    """The permutation of `size` rows for a seed and, for `ORDER`, the number of an epoch, and further numbers.

    The keys are hashed from all of them, so that neither seeds nor epochs are related.
    """
    keys = np.random.SeedSequence(seed, spawn_key=(purpose, number, *others)).generate_state(ROUNDS, np.uint64)
    return Permutation(size, tuple(keys.tolist()))
