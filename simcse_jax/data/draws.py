"""Random streams of the data, each a function of only the seed and the thing drawn, and computed permutations.

They never overlap. Philox gives every pair of a key and a counter its own numbers; streams that share keys, (seed,
number), begin at counters so far apart that no run gets from one to the other. The key of `corpus_generator` is hashed
from the seed and its purpose: one of 2^128, so it does not meet another stream's in practice.
"""

from typing import NamedTuple

import numpy as np

NEXT_SENTENCES, SUBSAMPLE, HELD_OUT = 0, 1, 4  # purposes of `corpus_generator`
ORDER, SUBSET = 2, 3  # of `permutation`
ROWS, DOCUMENTS, NEGATIVES, PLACES = 0x6175676D, 0x7370616E, 0x6E656773, 0x706C6163
ROUNDS = 8
FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd, so products keep all bits


def _generator(seed: int, number: int, stream: int, column: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, number], counter=[0, 0, column, stream]))


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    """For the order of the examples in an epoch."""
    return _generator(seed, epoch, 0)


def row_generator(seed: int, row: int, column: int) -> np.random.Generator:
    """For the changes to one sentence, given by its row and column."""
    return _generator(seed, row, ROWS, column)


def document_generator(seed: int, document: int) -> np.random.Generator:
    """For the spans of one document, given by its number."""
    return _generator(seed, document, DOCUMENTS)


def negative_generator(seed: int, row: int) -> np.random.Generator:
    """For the choice among one query's hard negatives, given by its row."""
    return _generator(seed, row, NEGATIVES)


def place_generator(seed: int, epoch: int) -> np.random.Generator:
    """For the places in an epoch of rows that equal texts keep apart."""
    return _generator(seed, epoch, PLACES)


def corpus_generator(seed: int, purpose: int) -> np.random.Generator:
    """For the choice of a corpus's examples; the purpose is `NEXT_SENTENCES`, `SUBSAMPLE` or `HELD_OUT`."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(purpose,))))


class Permutation(NamedTuple):
    """A permutation of 0 … size - 1 that is computed, not stored, given by its keys.

    A Feistel network of alternating halves is a permutation of all numbers of b bits, whatever its round functions are
    (Luby and Rackoff, 1988). Numbers that leave the range go through it again until they are back ("cycle walking",
    Black and Rogaway, 2002). b is the least number of bits that can hold the range, so this takes at most two passes on
    average.
    """

    size: int
    keys: tuple[int, ...]  # one for each round

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """(…) int64: the rows at these positions."""
        rows = np.asarray(positions, np.uint64)
        if self.size < 2:
            return rows.astype(np.int64)
        rows = self._pass(rows)
        outside = np.flatnonzero(rows >= self.size)
        while outside.size:
            again = self._pass(rows.flat[outside])
            rows.flat[outside] = again
            outside = outside[again >= self.size]
        return rows.astype(np.int64)

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


def permutation(size: int, seed: int, purpose: int, number: int = 0, *further: int) -> Permutation:
    """The permutation of `size` rows for a seed and, for `ORDER`, the number of an epoch, and further numbers.

    The keys are hashed from all of them, so that neither seeds nor epochs are related.
    """
    keys = np.random.SeedSequence(seed, spawn_key=(purpose, number, *further)).generate_state(ROUNDS, np.uint64)
    return Permutation(size, tuple(keys.tolist()))
