"""Training sentences from files, hub datasets and TensorFlow datasets.

A specification is a path ending in .txt, .csv, .tsv, .jsonl or .parquet, `hf:NAME[:CONFIG[:SPLIT]]` or
`tfds:NAME[:SPLIT]`. What comes out is the same for all: one column of sentences a role.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, reason

ROLES = ("anchor", "positive", "negative")
# Column names that need no `data.columns`: the reference data's first.
USUAL_NAMES = {
    "anchor": ("sent0", "anchor", "sentence", "text"),
    "positive": ("sent1", "positive"),
    "negative": ("hard_neg", "negative"),
}


MISSING = object()  # a field that a row does not have


class Examples(NamedTuple):
    """Columns of sentences of equal length: one (anchor), two (and positive) or three (and hard negative)."""

    columns: tuple[list[str], ...]
    blank: int  # rows left out because a sentence was blank

    def __len__(self) -> int:
        return len(self.columns[0])


class Row(NamedTuple):
    """The fields of one row, and where it stands, for messages."""

    where: str
    fields: Sequence[object]


def open_text(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file (a byte-order mark is dropped), without their ends.

    Raises:
      UserError: when the file is missing, unreadable or, naming the line, not UTF-8.
    """
    number = 0
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        bad = f"byte 0x{error.object[error.start]:02x}"
        raise UserError(
            f"{path}: line {number} is not UTF-8 ({bad}); convert the file, e.g. `iconv -f LATIN1 -t UTF-8`"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def choose_columns(names: Sequence[str], columns: Mapping[str, str], where: str, ordered: bool = True) -> list[int]:
    """Which of the columns `names` are anchor, positive and negative.

    Those that `columns` maps; else those with a usual name; else, if there are at most three, by their order
    (only a single one where the order means nothing: `ordered` False).

    Raises:
      UserError: when a mapped column is not there, or nothing says which columns to take.
    """
    mapped = {role: name for role, name in columns.items() if name}
    if mapped:
        for role, name in mapped.items():
            if name not in names:
                raise UserError(f"{where}: no column {name!r} (data.columns.{role}); it has {', '.join(names)}")
        return [list(names).index(mapped[role]) for role in ROLES if role in mapped]
    usual = []
    for role in ROLES:
        found = next((name for name in USUAL_NAMES[role] if name in names), None)
        if found is None:
            break
        usual.append(list(names).index(found))
    if usual:
        return usual
    if len(names) <= (3 if ordered else 1):
        return list(range(len(names)))
    raise UserError(
        f"{where}: which columns? It has {', '.join(names)}; set data.columns.anchor (and positive, negative)"
    )


def read_examples(specification: str, columns: Mapping[str, str] | None = None) -> Examples:
    """Reads all examples of a specification (see the module's docstring).

    Args:
      specification: what to read.
      columns: role to column name, where the names are not the usual ones; empty names do not count.

    Raises:
      UserError: in one line, naming the file and the row.
    """
    columns = columns or {}
    for prefix, reader in (("hf:", _read_hub), ("tfds:", _read_tfds)):
        if specification.startswith(prefix):
            names, rows = reader(specification.removeprefix(prefix))
            chosen = choose_columns(names, columns, specification, ordered=prefix != "tfds:")
            return _collect(rows, names, chosen, specification)
    path = Path(specification).expanduser()
    reader = READERS.get(path.suffix.lower())
    if not path.is_file():
        raise UserError(f"data.train={specification}: no such file")
    if reader is None:
        raise UserError(f"{path}: unknown kind of file {path.suffix!r}; known are {', '.join(READERS)}, hf: and tfds:")
    names, rows = reader(path)
    return _collect(rows, names, choose_columns(names, columns, str(path)), str(path))


def _collect(rows: Iterable[Row], names: Sequence[str], chosen: Sequence[int], where: str) -> Examples:
    collected: tuple[list[str], ...] = tuple([] for _ in chosen)
    blank = 0
    for row in rows:
        sentences = [row.fields[column] for column in chosen]
        for column, sentence in zip(chosen, sentences, strict=True):
            _check_text(sentence, f"{row.where}: the field {names[column]!r}")
        if not all(sentence and sentence.strip() for sentence in sentences):
            blank += 1
            continue
        for column, sentence in zip(collected, sentences, strict=True):
            column.append(sentence.strip())
    if not collected[0]:
        raise UserError(f"{where}: holds no sentences" + (f", only {blank} blank rows" if blank else ""))
    return Examples(collected, blank)


def _check_text(sentence: object, where: str) -> None:
    if sentence is MISSING:
        raise UserError(f"{where} is missing")
    if sentence is not None and not isinstance(sentence, str):
        raise UserError(f"{where} holds {sentence!r}, which is no text; choose text columns with data.columns")
    try:
        (sentence or "").encode()
    except UnicodeEncodeError:
        raise UserError(f"{where} holds half a surrogate pair, which is no character") from None


def _read_lines(path: Path) -> tuple[list[str], Iterator[Row]]:
    return ["sentence"], (Row(f"{path}: line {number}", [line]) for number, line in enumerate(open_text(path), 1))


def _read_separated(path: Path, **dialect: Any) -> tuple[list[str], Iterator[Row]]:
    reader = csv.reader((line + "\n" for line in open_text(path)), strict=True, **dialect)

    def records() -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as error:
            raise UserError(f"{path}: line {reader.line_num}: {error}") from None

    iterator = records()
    names = next((fields for fields in iterator if any(field.strip() for field in fields)), None)
    if not names:
        raise UserError(f"{path}: empty; its first line names the columns, e.g. sent0,sent1,hard_neg")

    def rows() -> Iterator[Row]:
        for fields in iterator:
            where = f"{path}: line {reader.line_num}"
            if not fields or not any(field.strip() for field in fields):
                fields = [""] * len(names)
            if len(fields) != len(names):
                raise UserError(
                    f"{where}: {len(fields)} columns, but the first line names {len(names)}; quote or mend it"
                )
            yield Row(where, fields)

    return names, rows()


def _read_csv(path: Path) -> tuple[list[str], Iterator[Row]]:
    return _read_separated(path)


def _read_tsv(path: Path) -> tuple[list[str], Iterator[Row]]:
    # As SentEval and STS write it: a quotation mark is a character like any other.
    return _read_separated(path, delimiter="\t", quoting=csv.QUOTE_NONE)


def _read_jsonl(path: Path) -> tuple[list[str], Iterator[Row]]:
    def records() -> Iterator[tuple[int, dict]]:
        for number, line in enumerate(open_text(path), 1):
            if not line.strip():
                yield number, {}
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}: line {number}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise UserError(f"{path}: line {number}: not a JSON object")
            yield number, record

    names = next((list(record) for _, record in records() if record), None)
    if names is None:
        raise UserError(f"{path}: holds no sentences")

    def rows() -> Iterator[Row]:
        for number, record in records():
            absent = MISSING if record else None  # no record: a blank line
            yield Row(f"{path}: line {number}", [record.get(name, absent) for name in names])

    return names, rows()


def _read_parquet(path: Path) -> tuple[list[str], Iterator[Row]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not a readable parquet file: {error}") from None
    if not table.column_names:
        raise UserError(f"{path}: has no columns")
    return table.column_names, _table_rows(table.column_names, table.to_pydict(), str(path))


def _table_rows(names: Sequence[str], columns: Mapping[str, Sequence], where: str) -> Iterator[Row]:
    for number, fields in enumerate(zip(*(columns[name] for name in names), strict=True), 1):
        yield Row(f"{where}: row {number}", fields)


def _read_hub(specification: str) -> tuple[list[str], Iterator[Row]]:
    name, _, rest = specification.partition(":")
    config, _, split = rest.partition(":")
    name = str(Path(name).expanduser()) if name.startswith("~") else name
    if not name:
        raise UserError(f"hf:{specification}: names no dataset; write hf:NAME[:CONFIG[:SPLIT]]")
    import datasets

    datasets.disable_progress_bars()
    where = f"hf:{specification}"
    try:
        if Path(name).is_dir() and any((Path(name) / f).is_file() for f in ("state.json", "dataset_dict.json")):
            # Saved on disk: there is no configuration, so `hf:FOLDER:SPLIT` is understood too.
            data, wanted = datasets.load_from_disk(name), split or config
            if isinstance(data, datasets.DatasetDict):
                if (wanted or "train") not in data:
                    raise UserError(f"{where}: no split {wanted or 'train'!r}; it has {', '.join(data)}")
                data = data[wanted or "train"]
            elif wanted:
                raise UserError(f"{where}: saved without splits, so none can be named")
        else:
            data = datasets.load_dataset(name, config or None, split=split or "train")
    except UserError:
        raise
    except Exception as error:  # the library raises its own, the hub's and the file system's
        raise UserError(f"{where}: the dataset could not be loaded: {reason(error)}") from None
    names = list(data.column_names)

    def rows() -> Iterator[Row]:
        for number, record in enumerate(data, 1):
            yield Row(f"{where}: row {number}", [record[name] for name in names])

    return names, rows()


def _read_tfds(specification: str) -> tuple[list[str], Iterator[Row]]:
    # NAME may end in a version (name/config:1.0.0), and a split may hold a colon itself (train[:1%]).
    name, split = re.fullmatch(r"([^:]*(?::\d+\.\d+\.\d+)?):?(.*)", specification).groups()
    where = f"tfds:{specification}"
    import tensorflow_datasets as tfds

    try:
        source = tfds.data_source(name, split=split or "train")
        names = [key for key in source[0]] if len(source) else []
    except Exception as error:  # as above
        raise UserError(f"{where}: the dataset could not be loaded: {reason(error)}") from None
    if not names:
        raise UserError(f"{where}: holds no sentences")

    def text(value: object, row: str) -> object:
        try:
            return value.decode("utf-8") if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise UserError(f"{row} is not UTF-8") from None

    def rows() -> Iterator[Row]:
        for number, record in enumerate(source, 1):
            row = f"{where}: row {number}"
            yield Row(row, [text(record[name], row) for name in names])

    return names, rows()


READERS: dict[str, Callable[[Path], tuple[list[str], Iterator[Row]]]] = {
    ".txt": _read_lines,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
