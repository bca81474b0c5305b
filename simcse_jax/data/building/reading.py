"""Shared by builders: the files and tables that they read, what they count, and random samples."""

import glob
import heapq
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from simcse_jax.data.columns import listed
from simcse_jax.data.datasets import LIBRARIES
from simcse_jax.data.examples import open_table
from simcse_jax.data.rows import Row, as_text
from simcse_jax.errors import UserError
from simcse_jax.host.progress import Clock, write
from simcse_jax.host.storage import local_path

LOOK = 100  # units between two looks at the clock
BLANK = "with a blank sentence"
NOT_DRAWN = "not drawn"


def resolve(sources: Iterable[str], patterns: Sequence[str], splits: Sequence[str] = ("",)) -> list[str | Path]:
    """The files and data sets that sources name, in order, each once.

    Args:
      patterns: of the files in a folder, with {split} for the split.
      splits: the splits to read; a folder must have all.
    """
    by_path: dict[str, str | Path] = {}
    for source in sources:
        if source.startswith(tuple(LIBRARIES)):
            by_path[source] = source
            continue
        path = local_path(source)
        if not path.exists():
            raise UserError(f"--source {source}: no such file or folder")
        files = [path]
        if path.is_dir():
            of_splits = ([pattern.format(split=split) for pattern in patterns] for split in splits)
            files = [file for of_split in of_splits for file in _matching(path, of_split)]
        by_path |= {os.path.realpath(file): file for file in files}
    return list(by_path.values())


def _matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """A folder's files that match a pattern, sorted by pattern and name; no hidden files."""
    names = (name for pattern in patterns for name in sorted(glob.glob(pattern, root_dir=folder)))
    files = [folder / name for name in names if (folder / name).is_file()]
    if not files:
        raise UserError(f"--source {folder}: has no file {' or '.join(patterns)}; name a file, or unpack the download")
    return files


def read_columns(source: str | Path, name_sets: Sequence[Sequence[str]]) -> Iterator[Row]:
    """The rows of a file or data set with the first of these sets of columns that it has, in that order."""
    names, rows, where, _ = open_table(str(source))
    chosen = next((name_set for name_set in name_sets if set(name_set) <= set(names)), None)
    if chosen is None:
        expected = " or ".join(", ".join(name_set) for name_set in name_sets)
        raise UserError(f"{where}: its columns are {listed(names)}; it must have {expected}")
    places = [names.index(name) for name in chosen]
    return (Row(row.where, [row.fields[place] for place in places]) for row in rows)


class Tally:
    """Counts what a builder reads; every unit is used, or dropped for a reason."""

    def __init__(self, unit: str):
        self.unit = unit  # what is counted: pairs, captions, pages
        self.read = 0
        self.dropped: Counter[str] = Counter()  # by reason
        self.notes: list[str] = []  # further lines for the user
        self._clock = Clock()

    def see(self) -> None:
        """Counts a unit as read, and reports the number on standard error every half minute."""
        self.read += 1
        if self.read % LOOK == 0 and self._clock.is_due():
            write(f"{self.read:,} {self.unit} read", sys.stderr)

    @property
    def used(self) -> int:
        """The number of units that were not dropped."""
        return self.read - self.dropped.total()

    def lines(self) -> list[str]:
        """The counts, a line each, reasons in descending order."""
        lines = [f"{self.read:,} {self.unit} read, {self.used:,} used"]
        lines += [f"  {count:,} dropped: {reason}" for reason, count in self.dropped.most_common() if count]
        return [*lines, *self.notes]


def sentence(value: object, where: str) -> str:
    """The text of a field in one line, stripped; "" for None."""
    return " ".join(filter(None, map(str.strip, as_text(value, where).splitlines())))


def draw(units: Iterable[Callable[[], list[str]]], count: int, seed: int, tally: Tally) -> list[list[str]]:
    """Units drawn at random without replacement, with `count` sentences in total, in the order of the stream.

    Every unit gets a random key, and those with the smallest keys are kept: a uniform sample of a stream that need not
    fit into memory. Units that cannot be among them are not read.

    Args:
      units: functions that return the unit's sentences; whoever made a unit without sentences counts it as dropped.
      count: the number of sentences, to which the last unit is cut; if there are fewer, all are taken.
      tally: counts units that are not drawn as dropped.
    """
    generator = random.Random(seed)
    kept: list[tuple[float, int, list[str]]] = []  # a heap: the largest key comes first
    total = 0
    for place, unit in enumerate(units):
        key = -generator.random()
        if total >= count and key < kept[0][0]:
            tally.dropped[NOT_DRAWN] += 1
            continue
        if not (sentences := unit()):
            continue
        heapq.heappush(kept, (key, place, sentences))
        total += len(sentences)
        while total - len(kept[0][2]) >= count:
            total -= len(heapq.heappop(kept)[2])
            tally.dropped[NOT_DRAWN] += 1
    if total > count:
        key, place, sentences = kept[0]
        kept[0] = key, place, sentences[: len(sentences) - (total - count)]
    return [sentences for _, _, sentences in sorted(kept, key=lambda item: item[1])]
