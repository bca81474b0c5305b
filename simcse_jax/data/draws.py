"""The random streams of the data: each is a function of the seed and of the thing drawn, and of nothing else.

| stream | used for | Philox's key | its counter |
| --- | --- | --- | --- |
| `epoch_generator` | the order of an epoch | (seed, epoch) | from 0 |
| `row_generator` | how one sentence is augmented | (seed, row) | from (0, 0, column, `ROWS`) |
| `document_generator` | the spans of one document | (seed, document) | from (0, 0, 0, `DOCUMENTS`) |
| `negative_generator` | the hard negatives of one query | (seed, row) | from (0, 0, 0, `NEGATIVES`) |
| `corpus_generator` | next sentences; subsamples | hashed from seed and purpose | from 0 |

They never overlap. Philox gives every pair of a key and a counter its own numbers. The first four share keys, and use
counters so far apart that no run gets from one to the other. A hashed key is one of 2^128: a collision with another
stream's key does not happen in practice.
"""

import numpy as np

NEXT_SENTENCES, SUBSAMPLE = 0, 1  # purposes of `corpus_generator`
ROWS, DOCUMENTS, NEGATIVES = 0x6175676D, 0x7370616E, 0x6E656773


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    """For the order of the examples in an epoch."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch]))


def row_generator(seed: int, row: int, column: int) -> np.random.Generator:
    """For the changes to one sentence, given by its row and column."""
    return np.random.Generator(np.random.Philox(key=[seed, row], counter=[0, 0, column, ROWS]))


def document_generator(seed: int, document: int) -> np.random.Generator:
    """For the spans of one document, given by its number."""
    return np.random.Generator(np.random.Philox(key=[seed, document], counter=[0, 0, 0, DOCUMENTS]))


def negative_generator(seed: int, row: int) -> np.random.Generator:
    """For the choice among one query's hard negatives, given by its row."""
    return np.random.Generator(np.random.Philox(key=[seed, row], counter=[0, 0, 0, NEGATIVES]))


def corpus_generator(seed: int, purpose: int) -> np.random.Generator:
    """For the choice of a corpus's examples; the purpose is `NEXT_SENTENCES` or `SUBSAMPLE`."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(purpose,))))
