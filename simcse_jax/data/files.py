"""The files that a name stands for, and rows from .txt, .csv, .tsv, .jsonl and .parquet files, see `READERS`."""

import functools
import glob
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from simcse_jax.data.columns import is_sentences
from simcse_jax.data.labels import with_names
from simcse_jax.data.rows import MISSING, START, Lines, Place, Row, Table, is_text, reported, size_and_time
from simcse_jax.data.separated import read_separated
from simcse_jax.errors import UserError, broken, reason
from simcse_jax.host.hidden import is_hidden
from simcse_jax.host.storage import as_path, is_remote

PARQUET_ROWS = 8192  # read at once
LOOKED_AT = 10_000  # JSON lines whose fields are known before the first is read


def _read_lines(path: Path, start: Place = START) -> Table:
    lines = Lines(path, start)
    return ["sentence"], (Row(f"{path}: line {lines.place.line}", [line], lines.place) for line in lines)


def _records(path: Path, lines: Lines) -> Iterator[dict]:
    """The object of each line; an empty one of a blank line."""
    for line in lines:
        where = f"{path}: line {lines.place.line}"
        try:
            record: object = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not JSON: {error}; write one object a line") from None
        if not isinstance(record, dict):
            raise UserError(f"{where}: not an object; write one object a line")
        yield record


@functools.lru_cache(1024)  # each block of a file is opened separately
def _fields_of(path: Path, seen: tuple[int, float]) -> list[str]:
    """The fields of the first lines, in the order of their first values, and those that the first leaves empty."""
    names: dict[str, None] = {}
    for record in itertools.islice(_records(path, Lines(path)), LOOKED_AT):
        names |= {name: None for name, value in record.items() if not names or value not in (None, "", [])}
    if not names:
        raise UserError(f"{path}: holds no sentences")
    if wrong := next((name for name in names if not is_text(name)), None):
        raise UserError(f"{path}: the name of the field {wrong!r} {broken(wrong)}")
    return list(names)


def _read_jsonl(path: Path, start: Place = START) -> Table:
    names = _fields_of(path, size_and_time(path))
    known = set(names)

    def rows() -> Iterator[Row]:
        lines = Lines(path, start)
        for record in _records(path, lines):
            where = f"{path}: line {lines.place.line}"
            absent = MISSING if record else None  # no record: a blank line
            late = [name for name in record if name not in known and record[name] not in (None, "", [])]
            if late := list(filter(is_sentences, late)):  # others are of no use to the rows before
                raise UserError(f"{where}: has the field {late[0]!r:.60}, which earlier lines lack; give it there too")
            yield Row(where, [record.get(name, absent) for name in names], lines.place)

    return names, rows()


def read_parquet(path: Path, columns: Sequence[str] | None = None, first: int = 0) -> Table:
    """The names of all columns, and the rows, read a few thousand at a time.

    Args:
      columns: the ones to read, None for all; others are None in all rows, and errors in them do not matter.
      first: the first row to read, from 0; earlier row groups are skipped.
    """
    file = _open_parquet(path)
    names = file.schema_arrow.names
    if not names:
        raise UserError(f"{path}: has no columns")
    labels = _names_of_labels(file.schema_arrow)

    def rows() -> Iterator[Row]:
        ends = list(itertools.accumulate(file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)))
        groups = [at for at, end in enumerate(ends) if end > first]
        number = ends[groups[0] - 1] if groups and groups[0] else 0
        try:
            for batch in file.iter_batches(PARQUET_ROWS, row_groups=groups, columns=columns):
                left_out = min(max(first - number, 0), len(batch))
                number += left_out
                values = dict.fromkeys(names, [None] * (len(batch) - left_out))
                for name in columns or names:
                    column = batch.column(batch.schema.names.index(name)).slice(left_out).to_pylist()
                    values[name] = list(map(labels[name], column)) if name in labels else column
                for fields in zip(*map(values.__getitem__, names), strict=True):
                    number += 1
                    yield Row(f"{path}: row {number}", fields)
        except Exception as error:  # also for text that is not UTF-8 and times out of range
            raise UserError(f"{path}: damaged after row {number}: {reason(error)}") from None

    return names, rows()


def _names_of_labels(schema: Any) -> dict[str, Callable[[Any], Any]]:
    """What names the label numbers, by column, of files written by Hugging Face's datasets."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        labels = {name: feature for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
        return {name: with_names([*feature["names"]]) for name, feature in labels.items()}
    except (ValueError, KeyError, TypeError, AttributeError):  # absent, or in another form
        return {}


def _open_parquet(path: Path) -> Any:
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path.open("rb") if is_remote(path) else path)
        file.schema_arrow  # noqa: B018 - which reads it
    except Exception as error:  # of PyArrow or of a store's client
        raise UserError(f"{path}: not a readable parquet file: {reason(error)}") from None
    return file


def count_parquet(path: Path) -> int:
    """The number of rows in a .parquet file, from its footer."""
    return _open_parquet(path).metadata.num_rows


READERS: dict[str, Callable[..., Table]] = {  # take a path and, except the last, a place to start
    ".txt": _read_lines,
    ".csv": read_separated,
    ".tsv": read_separated,
    ".jsonl": _read_jsonl,
    ".parquet": read_parquet,
}


def reader_of(path: Any, further: str = "") -> Callable[..., Table]:
    """The reader of such a file, see `READERS`; `further` are other kinds of sources, for the error about others."""
    if path.suffix.lower() not in READERS:
        raise UserError(f"{path}: unknown file type {path.suffix!r}; known are {', '.join(READERS)}{further}")
    return READERS[path.suffix.lower()]


def files_of(name: str) -> list[str]:
    """The files of a name, sorted; those whose names begin with a dot or `_` are left out.

    Args:
      name: a file, which need not exist; a folder, of which the files of known types are read, not those of folders in
        it; or a pattern. On a disk or in a bucket.
    """
    pattern = glob.has_magic(name) and (is_remote(name) or not as_path(name).exists())
    if not pattern and (PurePath(name).suffix.lower() in READERS or not as_path(name).is_dir()):
        return [name]  # a bucket is not asked for a file
    files = _matching(name) if pattern else sorted(str(path) for path in as_path(name).iterdir() if path.is_file())
    wants_hidden = is_hidden(PurePath(name).name)  # such a pattern asks for them
    files = [file for file in files if wants_hidden or not is_hidden(PurePath(file).name)]
    if pattern and not files:
        raise UserError(f"{name}: no file matches")
    if not pattern and not (files := [file for file in files if PurePath(file).suffix.lower() in READERS]):
        raise UserError(f"{name}: a folder without {', '.join(READERS)} files")
    return files


def as_inputs(option: str, name: str | None) -> dict[str, str]:
    """The inputs of an option, for the checks of outputs (`host.outputs.Inputs`): the name itself and all its files."""
    if name is None:
        return {}
    try:
        files = files_of(name)
    except UserError as error:
        raise UserError(f"{option} {error}") from None
    return {option: name} | {f"{option} {file}": file for file in files if file != name}


def _matching(pattern: str) -> list[str]:
    if not is_remote(pattern):
        return sorted(glob.glob(str(as_path(pattern)), recursive=True))
    bucket, _, rest = pattern.removeprefix("gs://").partition("/")
    with reported(pattern):
        return sorted(str(path) for path in as_path(f"gs://{bucket}").glob(rest))
