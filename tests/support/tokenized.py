from typing import Any

import numpy as np

from simcse_jax.data.batches import Corpus


def random_corpus(rows: int, columns: int, length: int, seed: int, **fields: Any) -> Corpus:
    """Sentences of 2 to `length` tokens; no token occurs in two of them."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, length + 1, (rows, columns, 1))
    mask = np.arange(length) < lengths
    ids = np.where(mask, np.arange(1, 1 + rows * columns).reshape(rows, columns, 1), 0)
    return Corpus(ids.astype(np.int32), mask.astype(np.int8), **fields)
