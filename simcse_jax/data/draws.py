"""Random streams of the data: each is a function of the seed and of what it is for."""

import numpy as np

NEXT_SENTENCES, SUBSAMPLE = 0, 1  # the streams of random numbers that are drawn from here


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(stream,))))


STREAM = 0x6175676D  # in Philox's counter, so that these draws are no other's of the same seed


def row_generator(seed: int, row: int, column: int) -> np.random.Generator:
    """The random numbers of one sentence."""
    return np.random.Generator(np.random.Philox(key=[seed, row], counter=[0, 0, column, STREAM]))
