"""The pairs of contrastive tension: a sentence with itself, then K pairs of different sentences, and so on."""

from typing import NamedTuple

import numpy as np


class Pairing(NamedTuple):
    """How the sentences of one column become an epoch's pairs, in groups of K + 1 of which the first is positive.

    An epoch reads each sentence once, leaving out those after the last whole group.
    """

    negatives: int  # K
    fresh: bool  # whether negative pairs have two new sentences, or the group's first and a new one

    @property
    def group(self) -> int:
        """The number of a group's pairs."""
        return self.negatives + 1

    @property
    def places(self) -> np.ndarray:
        """(K + 1, 2): which of the group's sentences form each pair."""
        pairs = np.arange(self.group)
        if self.fresh:
            return np.stack([np.maximum(2 * pairs - 1, 0), 2 * pairs], axis=1)
        return np.stack([np.zeros_like(pairs), pairs], axis=1)

    @property
    def sentences(self) -> int:
        """The number of a group's sentences."""
        return int(self.places[-1, 1]) + 1

    def count(self, sentences: int) -> int:
        """The number of pairs that this many sentences make."""
        return sentences // self.sentences * self.group

    def pairs(self, order: np.ndarray) -> np.ndarray:
        """(N,) rows in the order of an epoch to (M, 2) rows of its pairs."""
        groups = len(order) // self.sentences
        return order[: groups * self.sentences].reshape(groups, self.sentences)[:, self.places].reshape(-1, 2)
