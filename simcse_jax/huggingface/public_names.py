"""How the values of a config are published: names on a hub and of packages in full, files and folders by base name."""

import re
from typing import Any

from simcse_jax.huggingface.hub import split_name
from simcse_jax.storage import local_path

MODELS = ("model.init_from", "data.augment.mlm_model")  # these fields may name a model on the hub


def public_value(field: str, value: Any) -> str:
    """A field's value without the places of files: `/home/me/corpus.csv` is `corpus.csv`.

    A name with one slash is a hub's where a field can have one, and neither that folder nor its parent is here.
    """
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    if not isinstance(value, str) or field.startswith("data.columns."):
        return str(value)
    kind, colon, rest = value.partition(":")
    if colon and kind in ("hf", "tfds"):
        name, *others = rest.split(":")
        return ":".join([kind, name if is_hub_id(name) else base_name(name), *others])
    if field in MODELS and (is_hub_id(value) or value.startswith("package:")):
        return value
    return base_name(value)


def is_hub_id(name: str) -> bool:
    """Whether a name can only be one of a hub: NAME or OWNER/NAME, perhaps @REVISION, and no such folder is here.

    A folder OWNER that is here makes it a path too: `runs/first` stays one when `first` has been removed.
    """
    if split_name(name) is None or local_path(name).exists():
        return False
    owner, slash, _ = name.partition("/")
    return not (slash and local_path(owner).is_dir())


def base_name(path: str) -> str:
    """The last part of a path of any system, or of an address."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]
