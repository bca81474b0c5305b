"""Training sentences from files, hub datasets and TensorFlow datasets.

A specification is a path ending in .txt, .csv, .tsv, .jsonl or .parquet, `hf:NAME[:CONFIG[:SPLIT]]` or
`tfds:NAME[:SPLIT]`. What comes out is the same for all: one column of sentences a role.
"""

import csv
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.data.columns import choose_columns, choose_labels
from simcse_jax.data.documents import REACH, next_sentences, read_documents
from simcse_jax.data.labels import LABELS, parse_label
from simcse_jax.errors import UserError, reason
from simcse_jax.storage import local_path

POSITIVES = (*LABELS, "all", *REACH)  # what `data.positives` may be, where it is not empty
PARQUET_ROWS = 8192  # read at once
NEXT_SENTENCES, SUBSAMPLE = 0, 1  # the streams of random numbers that are drawn from here

MISSING = object()  # a field that a row does not have


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Columns of N sentences each: anchors; and positives; and hard negatives; and neutral hypotheses."""

    columns: tuple[list[str], ...]
    blank: int  # rows left out because a sentence was blank
    labels: np.ndarray | None = None  # (N,) int32, places in `LABELS`; kept where they are asked for
    unlabelled: int = 0  # rows left out because they had no label, where labels are read

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


def read_examples(
    specification: str,
    columns: Mapping[str, str] | None = None,
    *,
    positives: str = "",
    labels: bool = False,
    subsample: int = 0,
    seed: int = 0,
) -> Examples:
    """Reads all examples of a specification (see the module's docstring).

    Args:
      specification: what to read.
      columns: role (anchor, positive, negative, neutral; label) to column name, where the names are not the usual
        ones; empty names do not count. Once `label` is set, rows without a label are left out.
      positives: what the positive of an anchor is. Empty: what the column says. A label: the hypotheses with
        this one; `all`: those with any label (SimCSE, Table 4). `next_sentence`, `next_3_sentences`: a sentence
        that follows in a document (Table 2, see documents.py).
      labels: whether labels are needed, and kept.
      subsample: take so many of the examples, drawn without replacement, in their order; 0 takes all.
      seed: of all that is drawn here.

    Raises:
      UserError: in one line, naming the file and the row, or the setting that does not fit the data.
    """
    columns = columns or {}
    if positives and positives not in POSITIVES:
        raise UserError(f"data.positives={positives!r}: not one of {', '.join(POSITIVES)}, or nothing")
    needed_by = "objective.softmax_nli" if labels else ""
    if positives and positives not in REACH:
        needed_by = f"data.positives={positives}"
    hub = specification.startswith(("hf:", "tfds:"))
    if positives in REACH and (hub or Path(specification).suffix.lower() != ".txt"):
        raise UserError(
            f"{specification}: data.positives={positives} reads a .txt file of documents, a blank line between them"
        )
    names, rows, where, ordered = _open(specification)
    chosen = choose_columns(names, columns, where, ordered)
    label = choose_labels(names, columns, needed_by, where)
    if needed_by and len(chosen) < 2:
        raise UserError(f"{where}: one column of sentences, but {needed_by} needs pairs; set data.columns.positive")
    if positives in REACH:
        examples = _pair(rows, positives, seed, where)
    else:
        examples = _collect(rows, names, chosen, label, where)
    if positives in LABELS:
        examples = _take(examples, np.flatnonzero(examples.labels == LABELS.index(positives)))
        if not len(examples):
            raise UserError(f"{where}: no pair is labelled {positives}; choose another data.positives")
    if subsample:
        if not 0 < subsample <= len(examples):
            raise UserError(f"data.subsample={subsample}: {where} gives {len(examples)} examples; 0 takes them all")
        drawn = _generator(seed, SUBSAMPLE).permutation(len(examples))[:subsample]
        examples = _take(examples, np.sort(drawn))
    return examples if labels else dataclasses.replace(examples, labels=None)


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(stream,))))


def _take(examples: Examples, rows: np.ndarray) -> Examples:
    columns = tuple([column[row] for row in rows.tolist()] for column in examples.columns)
    labels = None if examples.labels is None else examples.labels[rows]
    return dataclasses.replace(examples, columns=columns, labels=labels)


def _pair(rows: Iterable[Row], positives: str, seed: int, where: str) -> Examples:
    documents = read_documents(row.fields[0] for row in rows)
    if not documents:
        raise UserError(f"{where}: holds no sentences")
    if len(documents) == 1:
        raise UserError(
            f"{where}: no blank line between sentences, so they are taken to be shuffled and none to be the next of "
            f"another; data.positives={positives} needs documents with a blank line between them"
        )
    pairs = next_sentences(documents, REACH[positives], _generator(seed, NEXT_SENTENCES))
    if not pairs[0]:
        raise UserError(
            f"{where}: no document has two sentences, which data.positives={positives} needs; "
            f"leave blank lines between documents only"
        )
    return Examples(pairs, 0)


def _open(specification: str) -> tuple[list[str], Iterator[Row], str, bool]:
    """Column names, rows, what to call the source in messages, and whether the order of its columns means anything."""
    for prefix, reader in (("hf:", _read_hub), ("tfds:", _read_tfds)):
        if specification.startswith(prefix):
            return *reader(specification.removeprefix(prefix)), specification, prefix != "tfds:"
    path = local_path(specification)
    reader = READERS.get(path.suffix.lower())
    if not path.is_file():
        raise UserError(f"data.train={specification}: no such file")
    if reader is None:
        raise UserError(f"{path}: unknown kind of file {path.suffix!r}; known are {', '.join(READERS)}, hf: and tfds:")
    return *reader(path), str(path), True


def _collect(
    rows: Iterable[Row], names: Sequence[str], chosen: Sequence[int], label: int | None, where: str
) -> Examples:
    collected: tuple[list[str], ...] = tuple([] for _ in chosen)
    labels: list[int] = []
    blank = unlabelled = 0
    for row in rows:
        sentences = [row.fields[column] for column in chosen]
        for column, sentence in zip(chosen, sentences, strict=True):
            _check_text(sentence, f"{row.where}: the field {names[column]!r}")
        if not all(sentence and sentence.strip() for sentence in sentences):
            blank += 1
            continue
        if label is not None:
            field = f"{row.where}: the field {names[label]!r}"
            if row.fields[label] is MISSING:
                raise UserError(f"{field} is missing")
            number = parse_label(row.fields[label], field)
            if number is None:
                unlabelled += 1
                continue
            labels.append(number)
        for column, sentence in zip(collected, sentences, strict=True):
            column.append(sentence.strip())
    if not collected[0]:
        counts = ((blank, "blank rows"), (unlabelled, "rows without a label"))
        left_out = " and ".join(f"{count} {kind}" for count, kind in counts if count)
        raise UserError(f"{where}: holds no sentences" + (f", only {left_out}" if left_out else ""))
    return Examples(collected, blank, None if label is None else np.array(labels, np.int32), unlabelled)


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


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> tuple[list[str], Iterator[Row]]:
    """The names of all columns, and the rows of those that are wanted (None: all), some thousand at a time.

    Raises:
      UserError: when it is no parquet file; from the rows, when it is damaged.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: not a readable parquet file: {reason(error)}") from None
    names = file.schema_arrow.names
    if not names:
        raise UserError(f"{path}: has no columns")

    def rows() -> Iterator[Row]:
        number = 0
        try:
            for batch in file.iter_batches(PARQUET_ROWS, columns=columns):
                for fields in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield Row(f"{path}: row {number}", fields)
        except (OSError, pyarrow.ArrowException) as error:
            raise UserError(f"{path}: damaged behind row {number}: {reason(error)}") from None

    return names, rows()


def _read_hub(specification: str) -> tuple[list[str], Iterator[Row]]:
    name, _, rest = specification.partition(":")
    config, _, split = rest.partition(":")
    name = str(local_path(name)) if name.startswith("~") else name
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
    ".parquet": read_parquet,
}
