"""Sentences and pairs that a program has in memory, written to a file, which a run reads like any other."""

import itertools
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from simcse_jax.choices import LABELS
from simcse_jax.data.labels import UNLABELLED, parse_label
from simcse_jax.data.rows import is_text
from simcse_jax.data.scores import parse_score
from simcse_jax.data.sentences import check_one_table, columns_of
from simcse_jax.errors import UserError, broken, reason
from simcse_jax.host.storage import replacing_file

ROWS = 1 << 16  # written at once, so that an iterator may have more rows than memory holds
OURS = b"simcse_jax.data"  # in the metadata of the file
TUPLES = {1: ("sentence",), 2: ("anchor", "positive"), 3: ("anchor", "positive", "negative")}  # columns by width
GRADED = ("sentence1", "sentence2", "score")
LABELLED = ("sentence1", "sentence2", "label")
MOSTLY_SCORES = (
    "write a number, as most items have, or leave it empty; hard negatives that are numbers go in a table with the "
    "column negative"
)


def write_examples(data: Any, path: Path, name: str, used: bool = False) -> None:
    """Writes examples to a .parquet file, whole or not at all. A file that a run has `used` must hold the same.

    Args:
      data: an iterable of sentences, of tuples (anchor, positive), (anchor, positive, negative), (sentence, sentence,
        score) or (sentence, sentence, label), or of dictionaries; or a table: pandas' or Polars' frame, Arrow's table
        or stream, a `datasets.Dataset`, a dictionary of columns. Columns of a table are chosen by their names, as those
        of a file.
      name: of the argument, for errors.
      used: whether a run reads the file if it is there. Otherwise it is replaced, if it was written here.
    """
    parts = map(_without_nan, _parts(data, name))
    first = next(parts, None)
    if first is None:
        raise UserError(f"{name}: is empty; give sentences, tuples of them, or a table")
    if not any(pyarrow.types.is_string(kind) or pyarrow.types.is_list(kind) for kind in first.schema.types):
        raise UserError(f"{name}: has the columns {', '.join(first.schema.names)}, none of them text")
    all_parts = itertools.chain([first], parts)
    if path.exists() and used:
        return _check_same(all_parts, path, name)
    if path.exists() and OURS not in (pyarrow.parquet.read_schema(path).metadata or {}):
        raise UserError(f"{path}: exists and was not written for a run; choose another workdir")
    text = pyarrow.string()  # of a column that is empty so far: texts may follow
    fields = [field.with_type(text) if pyarrow.types.is_null(field.type) else field for field in first.schema]
    schema = pyarrow.schema(fields, metadata={OURS: b"of a program"})
    with replacing_file(path) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for part in all_parts:
            writer.write_table(_made(lambda part=part: part.cast(schema), name, "its rows differ"))


def _check_same(parts: Iterable[pyarrow.Table], path: Path, name: str) -> None:
    """Refuses examples that are not those of the file."""
    written = pyarrow.parquet.ParquetFile(path)
    before = written.iter_batches(ROWS)
    for part in parts:
        stored = next(before, None)
        if stored is None or part.schema.names != stored.schema.names or part.to_pylist() != stored.to_pylist():
            break
    else:
        if next(before, None) is None:
            return
    raise UserError(f"{path}: this workdir has a run on other {name}; choose another workdir, or remove this one")


def _parts(data: Any, name: str) -> Iterator[pyarrow.Table]:
    """The examples as tables of `ROWS` rows, but for the last one."""
    if isinstance(data, AbstractSet):
        raise UserError(f"{name}: a {type(data).__name__} has no order; give a list")
    check_one_table(data, f"{name}: ")
    is_stream = hasattr(data, "read_next_batch")  # Arrow's, of record batches, as DuckDB has it
    columns = data.schema.names if is_stream else None if isinstance(data, str | bytes) else columns_of(data)
    if columns is not None:
        yield from _of_table(data, columns, name)
        return
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        raise UserError(f"{name} {data!r:.60}: give a file's name, sentences, tuples of them, or a table")
    data = data.to_pylist() if hasattr(data, "to_pylist") else data  # Arrow's array
    rows, of_first = enumerate(data), list[str]()
    names: Sequence[str] = ()
    while part := list(itertools.islice(rows, ROWS)):
        if isinstance(part[0][1], Mapping):
            of_first = of_first or [*part[0][1]]
            yield _made(lambda part=part: pyarrow.Table.from_pylist(_of_names(part, of_first, name)), name)
            continue
        names = names or _names([_fields(item) for _, item in part])
        rows_of_part = [_checked(item, names, f"{name}: item {number}") for number, item in part]
        yield pyarrow.table(dict(zip(names, map(list, zip(*rows_of_part, strict=True)), strict=True)))


def _of_names(part: Iterable[tuple[int, Any]], names: list[str], where: str) -> list[dict[str, Any]]:
    """Records with the fields of the first one, in its order; PyArrow would ignore others."""
    records = []
    for number, row in part:
        if late := [name for name in row if name not in names and row[name] is not None]:
            raise UserError(f"{where}: item {number} has {late[0]!r:.60}, which item 0 lacks; give it there too (None)")
        records.append({name: row.get(name) for name in names})
    return records


def _of_table(table: Any, columns: list[Any], name: str) -> Iterator[pyarrow.Table]:
    if not columns:
        raise UserError(f"{name}: a table without columns")
    if unnamed := [column for column in columns if not isinstance(column, str)]:
        raise UserError(f"{name}: a table with a column {unnamed[0]!r}; give its columns names")
    if len({*columns}) < len(columns):
        raise UserError(f"{name}: a table with two columns of one name; rename one")
    if hasattr(table, "with_format"):  # datasets, of which `select` may have chosen some rows
        tables = table.with_format("arrow").iter(ROWS)
    elif hasattr(type(table), "to_arrow"):  # Polars; its stream has categories that Arrow cannot cast
        tables = [_made(table.to_arrow, name)]
    elif hasattr(table, "__arrow_c_stream__") and not hasattr(table, "iloc"):  # pandas would add its index
        tables = map(pyarrow.table, pyarrow.RecordBatchReader.from_stream(table))
    else:
        tables = [_made(lambda: pyarrow.table({n: pyarrow.array(table[n], from_pandas=True) for n in columns}), name)]
    for piece in _in_pieces(tables):
        schema = pyarrow.schema([pyarrow.field(field.name, _plain(field.type)) for field in piece.schema])
        yield _made(lambda piece=piece, schema=schema: piece.cast(schema), name)


def _in_pieces(tables: Iterable[pyarrow.Table]) -> Iterator[pyarrow.Table]:
    """The rows in tables of `ROWS` rows, except the last one: a stream's batches may differ between calls."""
    waiting, rows = list[pyarrow.Table](), 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows >= ROWS:
            whole, full = pyarrow.concat_tables(waiting), rows - rows % ROWS
            yield from (whole.slice(start, ROWS) for start in range(0, full, ROWS))
            waiting, rows = [whole.slice(full)], rows - full
    if rows:
        yield pyarrow.concat_tables(waiting)


def _plain(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type that is written: categories become their values, and all texts, and all lists, get one type."""
    types = pyarrow.types
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return pyarrow.list_(_plain(kind.value_type))
    return pyarrow.string() if types.is_large_string(kind) or types.is_string_view(kind) else kind


def _without_nan(table: pyarrow.Table) -> pyarrow.Table:
    """The table with null in place of NaN, which never equals itself, so that a later call can compare it."""
    for place, field in enumerate(table.schema):
        if pyarrow.types.is_float32(field.type) or pyarrow.types.is_float64(field.type):
            column = table.column(place)
            nulls = pyarrow.scalar(None, field.type)
            column = pyarrow.compute.if_else(pyarrow.compute.is_nan(column), nulls, column)
            table = table.set_column(place, field.name, column)
    return table


def _made(make: Any, name: str, wrong: str = "cannot be a table") -> pyarrow.Table:
    try:
        return make()
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name}: {wrong}: {reason(error)}") from None


def _fields(item: Any) -> list[Any]:
    return list(item) if isinstance(item, tuple | list) else [item]


def _names(items: Sequence[Sequence[Any]]) -> Sequence[str]:
    """Names for the columns of tuples. Third fields are scores or labels if most of those that are not empty are."""
    width = len(items[0])
    kinds = Counter(_kind_of_third(item[1], item[2]) for item in items if len(item) == width == 3)
    most = next((names for names in (GRADED, LABELLED) if kinds[names] > kinds.total() - kinds[()] - kinds[names]), ())
    return most or TUPLES.get(width, ())


def _kind_of_third(positive: Any, third: Any) -> tuple[str, ...]:
    """The columns that one item suggests; none if its third field is empty or of no known kind."""
    if _is_score(third):  # of two numbers as text, the second is as good an answer as the first
        return TUPLES[3] if isinstance(third, str) and _is_score(positive) else GRADED
    text = third.strip().lower() if isinstance(third, str) else ""
    return LABELLED if text and text in (*LABELS, *UNLABELLED) else TUPLES[3] if text else ()


def _is_score(value: Any) -> bool:
    """Whether a field is meant as a number, such as a percentage or 1,000, even if it cannot be a score."""
    try:
        text = value.strip().replace(",", ".").removesuffix("%") if isinstance(value, str) else value
        return parse_score(text, "") is not None
    except UserError:
        return False


def _checked(item: Any, names: Sequence[str], where: str) -> list[Any]:
    """An item's fields: its texts, and its score or label if it has one (None without)."""
    fields = _fields(item)
    texts = fields[:2] if names in (GRADED, LABELLED) else fields
    if len(fields) != len(names) or not all(isinstance(text, str) for text in texts):
        kinds = "sentences, pairs, triplets, or pairs with a score or a label, all items of one kind"
        raise UserError(f"{where} is {' '.join(reprlib.repr(item).split())}; give {kinds}")
    if bad := next((text for text in texts if not is_text(text)), None):
        raise UserError(f"{where}: {broken(bad)}")
    where += ": the third field"
    if names == LABELLED:
        label = parse_label(fields[2], where)
        return [*texts, None if label is None else LABELS[label]]
    return [*texts, parse_score(fields[2], where, MOSTLY_SCORES)] if names == GRADED else texts
