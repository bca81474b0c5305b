"""What builders read: files, tables and data sets, the text of their fields, counts of both, and random samples."""

import glob
import heapq
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from simcse_jax.data.datasets import LIBRARIES
from simcse_jax.data.files import READERS
from simcse_jax.data.rows import MISSING, Row, Table, is_text
from simcse_jax.errors import UserError, broken
from simcse_jax.host.progress import Clock, write
from simcse_jax.host.storage import local_path

LOOK = 100  # units between two looks at the clock
BLANK = "with a blank sentence"
NOT_DRAWN = "not drawn"


def is_dataset(source: str) -> bool:
    """Whether a source is `hf:…` or `tfds:…`, not a path."""
    return source.startswith(tuple(LIBRARIES))


def files_of(source: str, patterns: Iterable[str]) -> list[Path]:
    """The file itself, or the files in a folder that match a pattern, each pattern's sorted by name; no hidden ones."""
    path = local_path(source)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"--source {source}: no such file or folder")
    patterns = list(patterns)
    names = (name for pattern in patterns for name in sorted(glob.glob(pattern, root_dir=path)))
    found = dict.fromkeys(path / name for name in names if (path / name).is_file())
    if not found:
        raise UserError(f"--source {source}: has no file {' or '.join(patterns)}; name a file, or unpack the download")
    return list(found)


def resolve(sources: Iterable[str], patterns: Iterable[str], splits: Iterable[str] = ("",)) -> list[str | Path]:
    """The files and data sets that sources name, in order, each once.

    Args:
      sources: folders, files and data sets.
      patterns: of the files in a folder; {split} in them is a split.
      splits: those to read; a folder must have each.
    """
    patterns, splits = list(patterns), list(splits)
    found: dict[str, str | Path] = {}
    for source in sources:
        own: list[str | Path] = [source]
        if not is_dataset(source):
            own = [
                file for split in splits for file in files_of(source, [each.format(split=split) for each in patterns])
            ]
        named = {str(file) if is_dataset(str(file)) else os.path.realpath(file): file for file in own}
        for name in named:
            if name in found:
                raise UserError(f"--source {source}: {named[name]} is given twice; name it once")
        found |= named
    return list(found.values())


def open_table(source: str | Path) -> Table:
    """The column names and the rows of a file or a data set."""
    name = str(source)
    for prefix, library in LIBRARIES.items():
        if name.startswith(prefix):
            return library.read(name.removeprefix(prefix))
    path = local_path(source)
    if path.suffix.lower() not in READERS:
        raise UserError(f"{path}: unknown file type {path.suffix!r}; known are {', '.join(READERS)}")
    return READERS[path.suffix.lower()](path)


def columns(table: Table, wanted: Sequence[Sequence[str]], where: str) -> Iterator[Row]:
    """The rows with the first wanted set of columns that the table has, in that order.

    Args:
      table: its column names and rows.
      wanted: sets of names, such as those of several releases of the same data.
      where: its name, for the message.
    """
    names, rows = table
    chosen = next((each for each in wanted if set(each) <= set(names)), None)
    if chosen is None:
        known = " or ".join(", ".join(each) for each in wanted)
        raise UserError(f"{where}: its columns are {', '.join(names)}; it must have {known}")
    places = [names.index(name) for name in chosen]
    return (Row(row.where, [row.fields[place] for place in places]) for row in rows)


class Tally:
    """Counts of what a builder reads: every unit is used or dropped for a reason.

    Attributes:
      unit: what is counted: pairs, captions, pages.
      read: how many there were.
      dropped: how many were left out, by reason.
      notes: further lines for the user.
    """

    def __init__(self, unit: str):
        self.unit = unit
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.notes: list[str] = []
        self._clock = Clock()

    def see(self) -> None:
        """Counts a unit as read; long work says every half minute, on standard error, how many there were."""
        self.read += 1
        if self.read % LOOK == 0 and self._clock.is_due():
            write(f"{self.read:,} {self.unit} read", sys.stderr)

    def drop(self, reason: str, count: int = 1) -> None:
        """Counts units that are left out."""
        self.dropped[reason] += count

    @property
    def used(self) -> int:
        """The number of units that were not dropped."""
        return self.read - self.dropped.total()

    def lines(self) -> list[str]:
        """The counts, a line each, those of reasons from the largest down."""
        found = [f"{self.read:,} {self.unit} read, {self.used:,} used"]
        found += [f"  {count:,} dropped: {reason}" for reason, count in self.dropped.most_common() if count]
        return [*found, *self.notes]


def sentence(value: object, where: str) -> str:
    """The text of a field, without white space around it and in one line; empty for None.

    Args:
      value: of the field.
      where: the file, row and field, for the message.
    """
    if value is MISSING:
        raise UserError(f"{where} is missing")
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where} holds {value!r:.60}, not text")
    text = " ".join(filter(None, map(str.strip, (value or "").splitlines())))
    return checked(text, where)


def checked(text: str, where: str) -> str:
    """The text, unless it has what no file of lines can hold."""
    if "\0" in text:
        raise UserError(f"{where} holds a zero byte; remove it")
    if not is_text(text):
        raise UserError(f"{where} {broken(text)}")
    return text


def draw(units: Iterable[Callable[[], list[str]]], count: int, seed: int, tally: Tally) -> list[list[str]]:
    """Units, drawn at random without replacement, with `count` sentences in all.

    Every unit gets a random key, and those with the smallest keys are kept: a uniform sample, in memory for it alone.
    A unit that cannot be among them is not read.

    Args:
      units: each returns its sentences; one without sentences counts as dropped by whoever made it.
      count: of sentences; the last of the drawn units is cut to give this number. If there are fewer, all are taken.
      seed: of the keys.
      tally: units that are not drawn are dropped from it.

    Returns:
      The sentences of each drawn unit, in the order of the stream.
    """
    generator = random.Random(seed)
    kept: list[tuple[float, int, list[str]]] = []  # a heap: the largest key comes first
    total = 0
    for place, unit in enumerate(units):
        key = -generator.random()
        if total >= count and key < kept[0][0]:
            tally.drop(NOT_DRAWN)
            continue
        if not (sentences := unit()):
            continue
        heapq.heappush(kept, (key, place, sentences))
        total += len(sentences)
        while total - len(kept[0][2]) >= count:
            total -= len(heapq.heappop(kept)[2])
            tally.drop(NOT_DRAWN)
    if total > count:
        key, place, sentences = kept[0]
        kept[0] = key, place, sentences[: len(sentences) - (total - count)]
    return [sentences for _, _, sentences in sorted(kept, key=lambda each: each[1])]
