"""The random streams of the data: each is a function of the seed and of what is drawn, of nothing else.

| stream | drawn with it | Philox's key | its counter |
| --- | --- | --- | --- |
| `epoch_generator` | the order of an epoch | (seed, epoch) | from 0 |
| `row_generator` | how one sentence is augmented | (seed, row) | from (0, 0, column, `ROWS`) |
| `corpus_generator` | next sentences; subsamples | hashed from seed and purpose | from 0 |

They never meet. Philox gives every pair of a key and a counter its own numbers. The first two have the same keys, and
counters that lie so far apart that no run gets from one to the other. A hashed key is one of 2^128: that it is another
stream's does not happen in practice.
"""

import numpy as np

NEXT_SENTENCES, SUBSAMPLE = 0, 1  # what `corpus_generator` draws
ROWS = 0x6175676D


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    """Draws the order of the examples in an epoch."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch]))


def row_generator(seed: int, row: int, column: int) -> np.random.Generator:
    """Draws what happens to one sentence: that of a row in a column."""
    return np.random.Generator(np.random.Philox(key=[seed, row], counter=[0, 0, column, ROWS]))


def corpus_generator(seed: int, purpose: int) -> np.random.Generator:
    """Draws which examples a corpus has; the purpose is `NEXT_SENTENCES` or `SUBSAMPLE`."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(purpose,))))
