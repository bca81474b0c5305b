"""Sources of rows: the files in a folder, a file, a data set of a hub; and the columns that are wanted of them."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from simcse_jax.data.datasets import LIBRARIES
from simcse_jax.data.files import READERS
from simcse_jax.data.rows import Row, Table
from simcse_jax.errors import UserError
from simcse_jax.host.storage import local_path


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
