"""Sentences and pairs that a program has in memory, written to a file, which a run reads like any other."""

import itertools
import numbers
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from simcse_jax.data.rows import is_text
from simcse_jax.data.sentences import columns_of
from simcse_jax.errors import UserError, broken, reason
from simcse_jax.host.storage import replacing_file

ROWS = 1 << 16  # written at once, so that an iterator may have more rows than memory holds
OURS = b"simcse_jax.data"  # in the metadata of the file
SENTENCES = ("sentence",)
TUPLES = {2: ("anchor", "positive"), 3: ("anchor", "positive", "negative")}  # the columns of tuples of texts
GRADED = ("sentence1", "sentence2", "score")  # those of two texts and a number


def write_examples(given: Any, path: Path, name: str, used: bool = False) -> None:
    """Writes examples to a .parquet file, whole or not at all. One that a run has `used` must have the same.

    Args:
      given: an iterable of sentences, of tuples (anchor, positive), (anchor, positive, negative) or (sentence,
        sentence, score), or of dictionaries; or a table: pandas' or Polars' frame, Arrow's table, a
        `datasets.Dataset`, a dictionary of columns. Columns of a table are chosen by their names, as those of a file.
      name: of the argument, for errors.
      used: whether a run reads the file if it is there. Otherwise it is replaced, if it was written here.
    """
    parts = _parts(given, name)
    first = next(parts, None)
    if first is None:
        raise UserError(f"{name}: is empty; give sentences, tuples of them, or a table")
    if not any(pyarrow.types.is_string(kind) or pyarrow.types.is_list(kind) for kind in first.schema.types):
        raise UserError(f"{name}: has the columns {', '.join(first.schema.names)}, none of them text")
    every = itertools.chain([first], parts)
    if path.exists() and used:
        return _check_same(every, path, name)
    if path.exists() and OURS not in (pyarrow.parquet.read_schema(path).metadata or {}):
        raise UserError(f"{path}: exists and was not written for a run; choose another workdir")
    text = pyarrow.string()  # of a column that is empty so far: texts may follow
    fields = [field.with_type(text) if pyarrow.types.is_null(field.type) else field for field in first.schema]
    schema = pyarrow.schema(fields, metadata={OURS: b"of a program"})
    with replacing_file(path) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for part in every:
            writer.write_table(_made(lambda part=part: part.cast(schema), name, "its rows differ"))


def _check_same(parts: Iterable[pyarrow.Table], path: Path, name: str) -> None:
    """Refuses examples that are not those of the file."""
    written = pyarrow.parquet.ParquetFile(path)
    before = written.iter_batches(ROWS)
    for part in parts:
        there = next(before, None)
        if there is None or part.schema.names != there.schema.names or part.to_pylist() != there.to_pylist():
            break
    else:
        if next(before, None) is None:
            return
    raise UserError(f"{path}: this workdir has a run on other {name}; choose another workdir, or remove this one")


def _parts(given: Any, name: str) -> Iterator[pyarrow.Table]:
    """The examples as tables of `ROWS` rows, but for the last one."""
    if isinstance(given, AbstractSet):
        raise UserError(f"{name}: a {type(given).__name__} has no order; give a list")
    columns = None if isinstance(given, str | bytes) else columns_of(given)
    if columns is not None:
        yield from _of_table(given, columns, name)
        return
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise UserError(f"{name} {given!r:.60}: give a file's name, sentences, tuples of them, or a table")
    rows, of_first = enumerate(given), list[str]()
    while part := list(itertools.islice(rows, ROWS)):
        if isinstance(part[0][1], Mapping):
            of_first = of_first or [*part[0][1]]
            yield _made(lambda part=part: pyarrow.Table.from_pylist(_of_names(part, of_first, name)), name)
            continue
        fields = [_fields(row, number, name) for number, row in part]
        names = _names(fields[0])
        for (number, _), row in zip(part, fields, strict=True):
            if _names(row) != names:
                raise UserError(f"{name}: item {number} is {row!r:.60}, item {part[0][0]} {fields[0]!r:.60}")
        yield pyarrow.table(dict(zip(names, map(list, zip(*fields, strict=True)), strict=True)))


def _of_names(part: Iterable[tuple[int, Any]], names: list[str], given: str) -> list[dict[str, Any]]:
    """Dictionaries with the fields of the first one, in its order; of others PyArrow would read nothing."""
    found = []
    for number, row in part:
        if late := [name for name in row if name not in names and row[name] is not None]:
            raise UserError(f"{given}: item {number} has {late[0]!r:.60}, which item 0 lacks; give it there too (None)")
        found.append({name: row.get(name) for name in names})
    return found


def _of_table(given: Any, columns: list[Any], name: str) -> Iterator[pyarrow.Table]:
    if not columns:
        raise UserError(f"{name}: a table without columns")
    if others := [column for column in columns if not isinstance(column, str)]:
        raise UserError(f"{name}: a table with a column {others[0]!r}; give its columns names")
    if len({*columns}) < len(columns):
        raise UserError(f"{name}: a table with two columns of one name; rename one")
    if isinstance(given, pyarrow.Table):
        table = given
    elif hasattr(type(given), "to_arrow"):  # Polars
        table = given.to_arrow()
    elif hasattr(given, "with_format"):  # datasets, of which `select` may have chosen some rows
        table = pyarrow.concat_tables(given.with_format("arrow").iter(ROWS))
    else:
        values = {column: given[column] for column in columns}
        table = _made(lambda: pyarrow.table({n: pyarrow.array(v, from_pandas=True) for n, v in values.items()}), name)
    table = table.cast(pyarrow.schema([pyarrow.field(field.name, _plain(field.type)) for field in table.schema]))
    for start in range(0, table.num_rows, ROWS):
        yield table.slice(start, ROWS)


def _plain(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type that is written: categories are their values."""
    kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return pyarrow.string() if pyarrow.types.is_large_string(kind) else kind


def _made(make: Any, name: str, wrong: str = "cannot be a table") -> pyarrow.Table:
    try:
        return make()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name}: {wrong}: {reason(error)}") from None


def _fields(item: Any, number: int, name: str) -> tuple[Any, ...]:
    """An item's texts, and its score if there is one."""
    where = f"{name}: item {number}"
    fields = (item,) if isinstance(item, str) else tuple(item) if isinstance(item, tuple | list) else ()
    *texts, last = fields or (None,)
    graded = len(fields) == len(GRADED) and isinstance(last, numbers.Real) and not isinstance(last, bool)
    texts = texts if graded else [*texts, last]
    if not fields or len(fields) > len(GRADED) or not all(isinstance(text, str) for text in texts):
        what = "a sentence, a pair, a triplet, or a pair with a score"
        raise UserError(f"{where} is {item!r:.60}, not {what}")
    if bad := next((text for text in texts if not is_text(text)), None):
        raise UserError(f"{where}: {broken(bad)}")
    return (*texts, float(last)) if graded else tuple(texts)


def _names(fields: tuple[Any, ...]) -> tuple[str, ...]:
    if len(fields) == 1:
        return SENTENCES
    return TUPLES[len(fields)] if isinstance(fields[-1], str) else GRADED
