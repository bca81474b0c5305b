"""Config values fit for publishing: hub and package names in full, files and folders by base name."""

import re
from typing import Any

from simcse_jax.huggingface.hub import split_name
from simcse_jax.storage import local_path

MODELS = ("model.init_from", "data.augment.mlm_model")  # these fields may name a model on the hub


def public_value(field: str, value: Any) -> str:
    """A field's value without the folders of files: `/home/me/corpus.csv` becomes `corpus.csv`.

    A name with one slash is a hub id if the field can hold one and neither that folder nor its parent exists here.
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
    """Whether a name can only be a hub id: NAME or OWNER/NAME, perhaps with @REVISION, and no such folder here.

    An existing folder OWNER makes it a path too: `runs/first` stays one after `first` has been removed.
    """
    if split_name(name) is None or local_path(name).exists():
        return False
    owner, slash, _ = name.partition("/")
    return not (slash and local_path(owner).is_dir())


def base_name(path: str) -> str:
    """The last part of a URL, or of a path of any operating system."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]
