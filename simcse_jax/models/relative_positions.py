"""MPNet's relative positions: which of its learned numbers is added to the score of a query and a key.

The buckets are T5's (Raffel et al. 2020, section 2.1), 16 for keys up to the query and 16 for keys after it:
one for each distance up to 7, then wider ones, each √2 times as wide as the one before, the last one unbounded.
"""

import numpy as np
from jaxtyping import Int

# The first distance of each bucket: 0 to 7, then 8 · 16^(k/8) rounded up.
FIRST_DISTANCES = (*range(8), 8, 12, 16, 23, 32, 46, 64, 91)
BUCKETS = 2 * len(FIRST_DISTANCES)


def buckets(length: int) -> Int[np.ndarray, "{length} {length}"]:
    """The buckets of T tokens: (T, T) integers, the query's position first; below 16 where the key is not after it."""
    position = np.arange(length)
    distance = position[None] - position[:, None]
    bucket = np.searchsorted(FIRST_DISTANCES, np.abs(distance), side="right") - 1
    return bucket + len(FIRST_DISTANCES) * (distance > 0)
