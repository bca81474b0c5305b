"""The files that a name stands for, and rows from .txt, .csv, .tsv, .jsonl and .parquet files, see `READERS`."""

import glob
import itertools
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from simcse_jax.data.labels import with_names
from simcse_jax.data.rows import MISSING, START, Lines, Place, Row, Table, errors_of, is_text
from simcse_jax.data.separated import read_separated
from simcse_jax.errors import UserError, broken, reason
from simcse_jax.host.hidden import is_hidden
from simcse_jax.host.storage import as_path, is_remote

PARQUET_ROWS = 8192  # read at once


def _read_lines(path: Path, start: Place = START) -> Table:
    lines = Lines(path, start)
    return ["sentence"], (Row(f"{path}: line {lines.place.line}", [line], lines.place) for line in lines)


def stem_of(name: str) -> str:
    """NAME of a numbered column NAME_7; "" for others."""
    stem, _, number = name.rpartition("_")
    return stem if number.isdecimal() else ""


def _as_objects(line: str, value: object, path: Path) -> str:
    """The command that makes objects of arrays, or of what is written over several lines; "" for other lines."""
    match value:
        case [str(), str()]:
            program = "{anchor: .[0], positive: .[1]}"
        case [str(), str(), str()]:
            program = "{anchor: .[0], positive: .[1], negative: .[2]}"
        case [str(), str(), int() | float()]:
            program = "{sentence1: .[0], sentence2: .[1], score: .[2]}"
        case _:
            program = ".[]" if line.lstrip().startswith("[") else "." if line.strip() == "{" else ""
    return f"; write one object a line: `jq -c '{program}' {shlex.quote(str(path))} > objects.jsonl`" if program else ""


def _read_jsonl(path: Path, start: Place = START) -> Table:
    def records(lines: Lines) -> Iterator[dict]:
        for line in lines:
            if not line.strip():
                yield {}
                continue
            value: object = None
            try:
                value, wrong = json.loads(line), "not a JSON object"
            except (ValueError, RecursionError) as error:
                wrong = f"not JSON: {error}"
            if not isinstance(value, dict):
                raise UserError(f"{path}: line {lines.place.line}: {wrong}{_as_objects(line, value, path)}")
            yield value

    names = next((list(record) for record in records(Lines(path)) if record), None)
    if names is None:
        raise UserError(f"{path}: holds no sentences")
    for name in names:
        if not is_text(name):
            raise UserError(f"{path}: the name of the field {name!r} {broken(name)}")

    known_names, numbered = set(names), {stem for name in names if (stem := stem_of(name))}

    def rows() -> Iterator[Row]:
        lines = Lines(path, start)
        for record in records(lines):
            absent = MISSING if record else None  # no record: a blank line
            where = f"{path}: line {lines.place.line}"
            late = sorted(name for name in record.keys() - known_names if record[name] not in (None, "", []))
            for name in late:
                if stem_of(name) in numbered:
                    raise UserError(f"{where}: has the field {name!r}, which the first line lacks; give it there too")
            yield Row(where, [record.get(name, absent) for name in names], lines.place, late)

    return names, rows()


def read_parquet(path: Path, columns: Sequence[str] | None = None, first: int = 0) -> Table:
    """The names of all columns, and the rows with some of them, read a few thousand at a time.

    Args:
      columns: the ones to read, in this order; None for all. Errors in other columns do not matter.
      first: the first row to read, from 0; earlier row groups are skipped.
    """
    file = _open_parquet(path)
    names = file.schema_arrow.names
    if not names:
        raise UserError(f"{path}: has no columns")
    labels = {name: with_names(feature) for name, feature in _names_of_labels(file.schema_arrow).items()}

    def rows() -> Iterator[Row]:
        ends = list(itertools.accumulate(file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)))
        groups = [at for at, end in enumerate(ends) if end > first]
        number = ends[groups[0] - 1] if groups and groups[0] else 0
        try:
            for batch in file.iter_batches(PARQUET_ROWS, row_groups=groups, columns=columns):
                left_out = min(max(first - number, 0), len(batch))
                number += left_out
                wanted = batch.slice(left_out)
                places = [wanted.schema.names.index(name) for name in columns or names]
                values = [wanted.column(place).to_pylist() for place in places]
                for column, name in enumerate(columns or names):
                    values[column] = list(map(labels[name], values[column])) if name in labels else values[column]
                for fields in zip(*values, strict=True):
                    number += 1
                    yield Row(f"{path}: row {number}", fields)
        except _parquet_errors(path) as error:
            raise UserError(f"{path}: damaged after row {number}: {reason(error)}") from None

    return names, rows()


def _names_of_labels(schema: Any) -> dict[str, list[str]]:
    """The names of label numbers, by column, in files written by Hugging Face's datasets."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        labels = {name: feature["names"] for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):  # absent, or in another form
        return {}
    are_names = {
        name: isinstance(label_names, list) and {type(label) for label in label_names} == {str}
        for name, label_names in labels.items()
    }
    return {name: labels[name] for name, holds in are_names.items() if holds}


def _open_parquet(path: Path) -> Any:
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path.open("rb") if is_remote(path) else path)
        file.schema_arrow  # noqa: B018 - which reads it
    except _parquet_errors(path) as error:
        raise UserError(f"{path}: not a readable parquet file: {reason(error)}") from None
    return file


def _parquet_errors(path: Path) -> tuple[type[Exception], ...]:
    import pyarrow

    # Also for text that is not UTF-8 and times out of range.
    return errors_of(path, OSError, ValueError, OverflowError, pyarrow.ArrowException)


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


CONVERTED = {  # by suffix: how to make a file that is read
    ".json": "rename it to .jsonl if each line is an object; make those of an array: `jq -c '.[]' {0} > objects.jsonl`",
    ".gz": "unpack it: `gunzip {0}`",
    ".zip": "unpack it: `unzip {0}`",
    ".xlsx": "save its sheet as CSV UTF-8",
}


def reader_of(path: Any, further: str = "") -> Callable[..., Table]:
    """The reader of such a file, see `READERS`.

    Args:
      further: other kinds of sources that are known here, for the error.

    Raises:
      UserError: for a file of another type, with how to convert it.
    """
    suffix = path.suffix.lower()
    if suffix not in READERS:
        cure = CONVERTED.get(suffix, "known are {1}").format(shlex.quote(str(path)), ", ".join(READERS) + further)
        raise UserError(f"{path}: unknown file type {path.suffix!r}; {cure}")
    return READERS[suffix]


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
    try:
        return sorted(str(path) for path in as_path(f"gs://{bucket}").glob(rest))
    except UserError:
        raise
    except Exception as error:  # of the store's client
        raise UserError(f"{pattern}: cannot be listed: {reason(error)}") from None
