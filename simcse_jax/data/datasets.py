"""Rows of Hugging Face and TensorFlow datasets."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.data.labels import with_names
from simcse_jax.data.rows import Row, Table, reported
from simcse_jax.errors import UserError, require
from simcse_jax.host.storage import local_path


def _rows(data: Any, where: str, names: list[str], features: Any) -> Iterator[Row]:
    """The rows, with label numbers named."""
    named = [with_names(getattr(features[name], "names", None)) for name in names]
    with reported(where):
        for number, record in enumerate(data, 1):
            fields = [label(record[name]) for name, label in zip(names, named, strict=True)]
            yield Row(f"{where}: row {number}", [_text(field) for field in fields])


def _text(value: object) -> object:
    """TensorFlow's texts are bytes; what is not UTF-8 becomes a broken character, which is refused where it is read."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def read_hub_dataset(specification: str) -> Table:
    """The names of all columns, and the rows, of `NAME[:CONFIG[:SPLIT]]`; NAME may be a folder of `datasets`."""
    data, names = _load_hub_dataset(specification), list[str]()
    for name, feature in data.features.items():
        names.append(name)
        if getattr(feature, "decode", False):  # pictures and sounds, for which libraries may be missing, are not read
            data = data.cast_column(name, type(feature)(decode=False))
    return names, _rows(data, f"hf:{specification}", names, data.features)


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
    require("train", "datasets")
    import datasets

    with reported(where):
        if not _is_saved(name):
            return datasets.load_dataset(name, config or None, split=split or "train")
        data, split = datasets.load_from_disk(name), split or config  # which has no configurations
        if not isinstance(data, datasets.DatasetDict):
            if split:
                raise UserError(f"{where}: the dataset was saved without splits; leave out {split!r}")
            return data
        return data[split or "train"]


def read_tensorflow_dataset(specification: str) -> Table:
    """The names of all columns, and the rows, of `NAME[:SPLIT]`, read without TensorFlow."""
    source, where = _load_tensorflow_dataset(specification), f"tfds:{specification}"
    with reported(where):
        names = list(source[0]) if len(source) else []
    if not names:
        raise UserError(f"{where}: the dataset is empty")
    return names, _rows(source, where, names, source.dataset_info.features)


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

    with reported(f"tfds:{specification}"):
        return tfds.data_source(name, split=split or "train")


class Library(NamedTuple):
    """A library of datasets."""

    read: Callable[[str], Table]  # takes the text after the prefix
    ordered: bool  # whether the order of columns is meaningful
    version: Callable[[str], str]  # of the same text: changes with the rows


LIBRARIES = {  # by prefix
    "hf:": Library(read_hub_dataset, True, hub_version),
    "tfds:": Library(read_tensorflow_dataset, False, tensorflow_version),
}
