"""The sources that a setting names, and the joined examples of several sources."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from simcse_jax.errors import UserError

KINDS = ("sentences", "pairs", "triplets")  # by the number of columns; further columns are hard negatives


def kind_of(width: int) -> str:
    """The name for examples of this many sentences."""
    return KINDS[width - 1] if width <= len(KINDS) else f"pairs with {width - 2} hard negatives"


def same_kind(columns: int, other_columns: int) -> bool:
    """Whether sources with these numbers of columns can always be joined: numbers of hard negatives may differ."""
    return min(columns, len(KINDS)) == min(other_columns, len(KINDS))


def described(widths: np.ndarray) -> str:
    """A description of rows with these numbers of sentences (N,)."""
    fewest, most = int(widths.min(initial=widths.max(initial=0))), int(widths.max(initial=0))
    same = kind_of(most) if most else "rows"
    return f"{len(widths):,} " + (same if fewest == most else f"rows of {fewest} to {most} sentences")


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Columns of N sentences each: anchors, positives, and any number of hard negatives and neutral hypotheses.

    `present` is False for columns that a row lacks, since rows may have different numbers of hard negatives and sources
    different columns. Missing positives are the anchor, other missing columns the empty sentence.
    """

    columns: tuple[list[str], ...]
    blank: int  # rows left out because a sentence was blank
    labels: np.ndarray | None = None  # (N,) int32, indices into `LABELS`, or classes; None if not needed
    unlabelled: int = 0  # rows left out because they had no label
    unscored: int = 0  # rows left out because they had no score
    present: np.ndarray | None = None  # (N, C) bool; None if every row has all columns
    scores: np.ndarray | None = None  # (N,) float32, or (N, C - 1) of positives and hard negatives; None if not needed
    sources: np.ndarray | None = None  # (N,) source numbers, ascending; None for a single source

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, rows: np.ndarray) -> "Examples":
        """The examples of these rows."""
        arrays = {"labels": self.labels, "present": self.present, "scores": self.scores, "sources": self.sources}
        taken: dict[str, Any] = {name: None if array is None else array[rows] for name, array in arrays.items()}
        columns = tuple([column[row] for row in rows.tolist()] for column in self.columns)
        return dataclasses.replace(self, columns=columns, **taken)

    @property
    def kinds(self) -> str:
        """The number of examples and what they are: "3 pairs", or "3 rows of 2 to 4 sentences"."""
        return described(np.full(len(self), len(self.columns)) if self.present is None else self.present.sum(axis=1))

    def kinds_of_source(self, number: int) -> str:
        """As `kinds`, of one source; "0 rows" where none of its rows were drawn."""
        rows = np.arange(len(self)) if self.sources is None else np.flatnonzero(self.sources == number)
        return described(np.full(len(rows), len(self.columns)) if self.present is None else self.present[rows].sum(1))


def join(parts: Mapping[str, Examples], mixed: bool) -> Examples:
    """The examples of several sources, in order; without `mixed`, their kinds must be the same."""
    (first, leading), *rest = parts.items()
    if not rest:
        return leading
    for name, other in rest:
        if not same_kind(len(other.columns), len(leading.columns)) and not mixed:
            kinds = f"{first} has {kind_of(len(leading.columns))}, {name} has {kind_of(len(other.columns))}"
            raise UserError(f"data.train: {kinds}; choose the same columns with data.columns, or set data.mixed=True")
    examples = list(parts.values())
    width = max(len(part.columns) for part in examples)
    columns = tuple(
        list(itertools.chain.from_iterable(_column(part, place) for part in examples)) for place in range(width)
    )
    present = None
    if any(part.present is not None or len(part.columns) < width for part in examples):
        masks = [
            np.ones((len(part), len(part.columns)), bool) if part.present is None else part.present for part in examples
        ]
        present = np.concatenate([np.pad(mask, ((0, 0), (0, width - mask.shape[1]))) for mask in masks])
    labels = [part.labels for part in examples if part.labels is not None]
    scores = [_to_width(part.scores, width - 1) for part in examples if part.scores is not None]
    return Examples(
        columns,
        sum(part.blank for part in examples),
        np.concatenate(labels) if len(labels) == len(examples) else None,
        sum(part.unlabelled for part in examples),
        sum(part.unscored for part in examples),
        present,
        np.concatenate(scores) if len(scores) == len(examples) else None,
        np.repeat(np.arange(len(examples)), [len(part) for part in examples]),
    )


def _to_width(scores: np.ndarray, candidates: int) -> np.ndarray:
    """(N,) scores of pairs as they are, those of candidates as (N, candidates)."""
    return scores if scores.ndim == 1 else np.pad(scores, ((0, 0), (0, candidates - scores.shape[1])))


def _column(part: Examples, place: int) -> list[str]:
    """A column; anchors without positives are their own, and other missing columns have empty sentences."""
    if place < len(part.columns):
        return part.columns[place]
    return part.columns[0] if place == 1 else [""] * len(part)
