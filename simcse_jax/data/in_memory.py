"""Sentences and pairs that a program has in memory, written to a file, which a run reads like any other."""

import itertools
import numbers
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from simcse_jax.choices import LABELS
from simcse_jax.data.labels import UNLABELLED, name_of_class, parse_label
from simcse_jax.data.rows import is_number, is_text
from simcse_jax.data.scores import parse_score
from simcse_jax.data.sentences import is_table
from simcse_jax.errors import UserError, broken, reason
from simcse_jax.host.storage import replacing_file

ROWS = 1 << 16  # written at once, so that an iterator may have more rows than memory holds
OURS = b"simcse_jax.data"  # in the metadata of the file
TUPLES = {1: ("sentence",), 2: ("anchor", "positive"), 3: ("anchor", "positive", "negative")}  # columns by width
GRADED = ("sentence1", "sentence2", "score")
LABELLED = ("sentence1", "sentence2", "label")
CLASSED = ("sentence", "label")
KINDS = "sentences, pairs, triplets, pairs with a score or a label, or sentences with a number, all items of one kind"


def write_examples(data: Any, path: Path, name: str, used: bool = False) -> None:
    """Writes examples to a .parquet file, whole or not at all. A file that a run has `used` must hold the same.

    Args:
      data: an iterable of sentences, of tuples (anchor, positive), (anchor, positive, negative), (sentence, sentence,
        score), (sentence, sentence, label) or (sentence, number of its class), or of dictionaries; or a table: pandas'
        or Polars' frame, Arrow's table or stream, a `datasets.Dataset`, a dictionary of columns. Columns of a table are
        chosen by their names, as those of a file.
      name: of the argument, for errors.
      used: whether a run reads the file if it is there. Otherwise it is replaced, if it was written here.
    """
    try:
        parts = _parts(data, name)
        first = next((part for part in parts if part.num_rows), None)
        if first is None:
            raise UserError(f"{name}: is empty; give sentences, tuples of them, or a table")
        schema = pyarrow.schema(map(_plain, first.schema), metadata={OURS: b"of a program"})
        tables = (part.cast(schema) for part in itertools.chain([first], parts))
        if path.exists() and used:
            return _check_same(tables, path, name)
        if path.exists() and OURS not in (pyarrow.parquet.read_schema(path).metadata or {}):
            raise UserError(f"{path}: exists and was not written for a run; choose another workdir")
        with replacing_file(path) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:
            for table in tables:
                writer.write_table(table)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name}: cannot be a table: {reason(error)}") from None


def _check_same(tables: Iterable[pyarrow.Table], path: Path, name: str) -> None:
    """Refuses examples that are not those of the file."""
    batches = pyarrow.parquet.ParquetFile(path).iter_batches(ROWS)
    before, now = ((row for part in parts for row in part.to_pylist()) for parts in (batches, tables))
    if any(repr(old) != repr(new) for old, new in itertools.zip_longest(before, now)):  # a NaN does not equal itself
        raise UserError(f"{path}: this workdir has a run on other {name}; choose another workdir, or remove this one")


def _plain(field: pyarrow.Field) -> pyarrow.Field:
    """The field as it is written: categories become their values, and all texts, and all lists, get one type."""

    def plain(kind: pyarrow.DataType) -> pyarrow.DataType:
        types = pyarrow.types
        if types.is_dictionary(kind):
            return plain(kind.value_type)
        if types.is_list(kind) or types.is_large_list(kind):
            return pyarrow.list_(plain(kind.value_type))
        # A column that is empty so far: texts may follow.
        is_text = types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind)
        return pyarrow.string() if is_text else kind

    return pyarrow.field(field.name, plain(field.type))


def _parts(data: Any, name: str) -> Iterator[pyarrow.Table]:
    """The examples as tables."""
    if isinstance(data, Mapping) and any(map(is_table, data.values())):
        raise UserError(f"{name}: a dictionary of tables ({', '.join(data)}); give one of them")
    if hasattr(data, "with_format"):  # of datasets, of which `select` may have chosen some rows
        yield from data.with_format("arrow").iter(ROWS)
    elif hasattr(data, "to_arrow"):  # Polars; its stream has categories that Arrow cannot cast
        yield data.to_arrow()
    elif hasattr(data, "__arrow_c_stream__") and (is_table(data) or hasattr(data, "read_next_batch")):
        yield from map(pyarrow.table, pyarrow.RecordBatchReader.from_stream(data))
    elif isinstance(data, Mapping):
        yield pyarrow.table({key: pyarrow.array(values, from_pandas=True) for key, values in data.items()})
    elif isinstance(data, str | bytes | AbstractSet) or not hasattr(data, "__iter__"):
        raise UserError(f"{name} {data!r:.60}: give a file's name, a list of sentences or of tuples, or a table")
    else:
        yield from _of_items(data.to_pylist() if hasattr(data, "to_pylist") else data, name)


def _of_items(data: Iterable[Any], name: str) -> Iterator[pyarrow.Table]:
    names: Sequence[str] = ()
    items = enumerate(data)
    while part := list(itertools.islice(items, ROWS)):
        of_names = isinstance(part[0][1], Mapping)
        names = names or ([*part[0][1]] if of_names else _names([_fields(item) for _, item in part]))
        read = _named if of_names else _checked
        rows = [read(item, names, f"{name}: item {number}") for number, item in part]
        yield pyarrow.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _named(item: Any, names: Sequence[str], where: str) -> list[Any]:
    """The fields of a dictionary in the order of the first one's."""
    if late := [name for name in item if name not in names and item[name] is not None]:
        raise UserError(f"{where} has {late[0]!r:.60}, which item 0 lacks; give it there too (None)")
    return [item.get(name) for name in names]


def _fields(item: Any) -> list[Any]:
    return list(item) if isinstance(item, tuple | list) else [item]


def _names(items: Sequence[Sequence[Any]]) -> Sequence[str]:
    """Names for the columns of tuples. Third fields are scores or labels if most of those that are not empty are.

    Second fields are classes if the first one is a whole number; a text is a positive.
    """
    width = len(items[0])
    if width == 2 and isinstance(items[0][1], numbers.Integral):
        return CLASSED
    if width == 3:
        thirds = [item for item in items if len(item) == 3]
        filled = [item for item in thirds if _has_score(item) or (isinstance(item[2], str) and item[2].strip())]
        for names, fits in ((GRADED, _has_score), (LABELLED, _has_label)):
            if 2 * sum(map(fits, filled)) > len(filled):
                return names
    return TUPLES.get(width, ())


def _has_score(item: Sequence[Any]) -> bool:
    """Whether the third field is meant as a number, unless all are texts and the second is a number too: an answer."""
    positive, third = item[1:]
    if isinstance(third, str):
        is_score = is_number(third.strip()) and "/" not in third
        return is_score and not (isinstance(positive, str) and is_number(positive.strip()))
    return isinstance(third, numbers.Number) or type(third).__name__ in ("bool", "bool_", "NAType")


def _has_label(item: Sequence[Any]) -> bool:
    return isinstance(item[2], str) and item[2].strip().lower() in (*LABELS, *UNLABELLED)


def _checked(item: Any, names: Sequence[str], where: str) -> list[Any]:
    """An item's fields: its texts, and its score or label if it has one (None without)."""
    fields = _fields(item)
    texts = fields[: len(names) - 1] if names in (GRADED, LABELLED, CLASSED) else fields
    if len(fields) != len(names) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{where} is {' '.join(reprlib.repr(item).split())}; give {KINDS}")
    if bad := next((text for text in texts if not is_text(text)), None):
        raise UserError(f"{where}: {broken(bad)}")
    if names == CLASSED:
        return [*texts, name_of_class(fields[1]) or None]
    where += ": the third field"
    if names == LABELLED:
        label = parse_label(fields[2], where)
        return [*texts, None if label is None else LABELS[label]]
    return [*texts, parse_score(fields[2], where)] if names == GRADED else texts
