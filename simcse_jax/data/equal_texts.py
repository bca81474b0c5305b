"""Numbers of texts: equal texts have the same one, and different texts never do."""

from collections.abc import Iterable, Sequence

import numpy as np


def numbered(rows: Iterable[Sequence[str]]) -> tuple[np.ndarray, list[str]]:
    """The number of each text, counted from 0 in the order of their first places, and the different texts.

    Texts are compared whole, as they are before they are tokenized and cut; prompts are no part of them.

    Args:
      rows: N of C texts.

    Returns:
      (N, C) int32 and the texts by their numbers.
    """
    numbers: dict[str, int] = {}
    by_row = [[numbers.setdefault(text, len(numbers)) for text in row] for row in rows]
    return np.array(by_row, np.int32), list(numbers)
