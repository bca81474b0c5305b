"""Rows of hub datasets and of TensorFlow datasets."""

import re
from collections.abc import Iterator
from pathlib import Path

from simcse_jax.data.files import Row
from simcse_jax.errors import UserError, reason
from simcse_jax.storage import local_path


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
