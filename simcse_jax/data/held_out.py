"""Rows held out of the training data: half of them choose the best checkpoint, the other half judge it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Int64

from simcse_jax.data.draws import HELD_OUT, corpus_generator

FEWEST = 10  # groups of rows in each half or fold


class Split(NamedTuple):
    """The rows of each part, ascending."""

    rest: Int64[np.ndarray, " R"]
    development: Int64[np.ndarray, " D"]
    test: Int64[np.ndarray, " T"]
    groups: Int[np.ndarray, " N"]  # of all rows

    def independent(self, rows: Int64[np.ndarray, " M"]) -> int:
        """The number of groups that these rows are of."""
        return len(np.unique(self.groups[rows]))


def hold_out(columns: Sequence[Sequence[str]], count: int, seed: int) -> Split:
    """Holds out at most `count` rows, drawn with the seed. Rows that share a text stay in the same part.

    Whole groups are drawn, so a group that is larger than what is left to draw is trained on.

    Args:
      columns: C columns of N texts each; "" where a row lacks one.
      count: N to split all rows in halves.
    """
    of = connected(columns)
    sizes = np.bincount(of)
    parts, filled = np.zeros(len(sizes), np.int8), [0, 0]  # part 1 or 2 of each group; 0: the rest
    for group in corpus_generator(seed, HELD_OUT).permutation(len(sizes)).tolist():
        if sum(filled) == count:
            break
        if sum(filled) + sizes[group] <= count:
            half = int(filled[1] < filled[0])
            parts[group] = 1 + half
            filled[half] += int(sizes[group])
    rest, development, test = (np.flatnonzero(parts[of] == part) for part in range(3))
    return Split(rest, development, test, of)


def in_folds(
    columns: Sequence[Sequence[str]], folds: int, seed: int
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Splits rows into folds of much the same size. Rows that share a text are in the same fold.

    Groups come in an order drawn with the seed, the largest first; each goes into the fold with the fewest rows.

    Args:
      columns: C columns of N texts each; "" where a row lacks one.

    Returns:
      The fold of each row, from 0, and its group.
    """
    of = connected(columns)
    sizes = np.bincount(of)
    order = corpus_generator(seed, HELD_OUT).permutation(len(sizes))
    fold, filled = np.zeros(len(sizes), np.int64), np.zeros(folds, np.int64)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        fold[group] = filled.argmin()
        filled[fold[group]] += sizes[group]
    return fold[of], of


def connected(columns: Sequence[Sequence[str]]) -> Int[np.ndarray, " N"]:
    """(N,) the number of each row's group: rows with a text in common, whatever its case and spaces, are in one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, texts = len(columns[0]), dict[str, int]()
    edges = [
        (row, rows + texts.setdefault(" ".join(text.lower().split()), len(texts)))
        for column in columns
        for row, text in enumerate(column)
        if text
    ]
    ends = np.array(edges).T
    graph = coo_array((np.ones(len(edges), np.int8), (ends[0], ends[1])), shape=(rows + len(texts),) * 2)
    return np.unique(connected_components(graph, directed=False)[1][:rows], return_inverse=True)[1]
