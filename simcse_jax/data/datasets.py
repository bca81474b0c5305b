"""Rows of Hugging Face and TensorFlow datasets."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.data.labels import with_names
from simcse_jax.data.rows import Row, Table
from simcse_jax.errors import UserError, reason, require
from simcse_jax.host.storage import local_path


def read_hub_dataset(specification: str) -> Table:
    """The names of all columns, and the rows, of `NAME[:CONFIG[:SPLIT]]`; NAME may be a folder of `datasets`."""
    data, where = _load_hub_dataset(specification), f"hf:{specification}"
    names = list(data.column_names)
    for name, feature in data.features.items():
        if getattr(feature, "decode", False):  # pictures and sounds, for which libraries may be missing, are not read
            data = data.cast_column(name, type(feature)(decode=False))
    named = [with_names(getattr(data.features.get(name), "names", None)) for name in names]

    def rows() -> Iterator[Row]:
        number = 0
        try:
            for number, record in enumerate(data, 1):
                fields = [label(record[name]) for name, label in zip(names, named, strict=True)]
                yield Row(f"{where}: row {number}", fields)
        except (OSError, ValueError, OverflowError, RuntimeError) as error:  # a column that cannot be decoded
            raise UserError(f"{where}: cannot be read after row {number}: {reason(error)}") from None

    return names, rows()


def hub_version(specification: str) -> str:
    """The version of a hub dataset or of a saved one."""
    data = _load_hub_dataset(specification)
    if _is_saved(_hub_name(specification)):
        return str(data._fingerprint)  # of its content, and saved with it
    files = [Path(file["filename"]) for file in data.cache_files]  # in a folder named after the revision's hash
    return ", ".join(f"{file.parent.name}/{file.name} of {file.stat().st_size} bytes" for file in files)


def _hub_name(specification: str) -> str:
    name = specification.partition(":")[0]
    return str(local_path(name)) if name.startswith("~") else name


def _is_saved(name: str) -> bool:
    return Path(name).is_dir() and any((Path(name) / f).is_file() for f in ("state.json", "dataset_dict.json"))


def _load_hub_dataset(specification: str) -> Any:
    name, where = _hub_name(specification), f"hf:{specification}"
    config, _, split = specification.partition(":")[2].partition(":")
    if not name:
        raise UserError(f"{where}: the dataset's name is missing; write hf:NAME[:CONFIG[:SPLIT]]")
    require("train", "datasets")
    import datasets

    datasets.disable_progress_bars()
    try:
        if _is_saved(name):  # it has no configurations, so `hf:FOLDER:SPLIT` works too
            return _choose_split(datasets.load_from_disk(name), split or config, where)
        return datasets.load_dataset(name, config or None, split=split or "train")
    except UserError:
        raise
    except Exception as error:  # the library's own, the hub's or the file system's
        raise UserError(f"{where}: the dataset could not be loaded: {reason(error)}") from None


def _choose_split(data: Any, split: str, where: str) -> Any:
    """The named split of a saved dataset; `train` by default."""
    import datasets

    if isinstance(data, datasets.DatasetDict):
        split = split or "train"
        if split not in data:
            raise UserError(f"{where}: no split {split!r}; the dataset has {', '.join(data)}")
        return data[split]
    if split:
        raise UserError(f"{where}: the dataset was saved without splits; leave out {split!r}")
    return data


def read_tensorflow_dataset(specification: str) -> Table:
    """The names of all columns, and the rows, of `NAME[:SPLIT]`, read without TensorFlow."""
    source, where = _load_tensorflow_dataset(specification), f"tfds:{specification}"
    try:
        names = [key for key in source[0]] if len(source) else []
    except Exception as error:  # of any kind, like below
        raise UserError(f"{where}: the dataset could not be loaded: {reason(error)}") from None
    if not names:
        raise UserError(f"{where}: the dataset is empty")

    features = source.dataset_info.features
    named = [with_names(getattr(features[name], "names", None)) for name in names]

    def text(value: object, row: str) -> object:
        try:
            return value.decode("utf-8") if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise UserError(f"{row} is not UTF-8") from None

    def rows() -> Iterator[Row]:
        for number, record in enumerate(source, 1):
            row = f"{where}: row {number}"
            yield Row(row, [label(text(record[name], row)) for name, label in zip(names, named, strict=True)])

    return names, rows()


def tensorflow_version(specification: str) -> str:
    """The name, configuration and version of a TensorFlow dataset, and its size."""
    information = _load_tensorflow_dataset(specification).dataset_info
    return f"{information.full_name} of {information.dataset_size} bytes"


def _load_tensorflow_dataset(specification: str) -> Any:
    # NAME may end in a version (name/config:1.0.0), and a split may contain a colon (train[:1%]).
    parts = re.fullmatch(r"([^:]*(?::\d+\.\d+\.\d+)?):?(.*)", specification)
    assert parts is not None  # both groups may be empty
    name, split = parts.groups()
    require("train", "tensorflow_datasets")
    import tensorflow_datasets as tfds

    try:
        return tfds.data_source(name, split=split or "train")
    except Exception as error:  # of any kind: the library's, or the file system's
        raise UserError(f"tfds:{specification}: the dataset could not be loaded: {reason(error)}") from None


class Library(NamedTuple):
    """A library of datasets."""

    read: Callable[[str], Table]  # takes the text after the prefix
    ordered: bool  # whether the order of columns is meaningful
    version: Callable[[str], str]  # of the same text: changes with the rows


LIBRARIES = {  # by prefix
    "hf:": Library(read_hub_dataset, True, hub_version),
    "tfds:": Library(read_tensorflow_dataset, False, tensorflow_version),
}
