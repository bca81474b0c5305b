"""Config values safe to publish: hub and package names in full, files and folders by base name."""

import csv
import re
from collections.abc import Collection, Mapping
from typing import Any

from simcse_jax.host.names import split_glove
from simcse_jax.host.storage import local_path
from simcse_jax.huggingface.hub import split_name

LISTS = ("data.train", "eval.retrieval.data", "eval.postprocess_data")  # these may name several sources
# These fields may name a model on the hub.
MODELS = ("model.init_from", "model.generator", "teacher.model", "teacher.second", "data.augment.mlm_model")
TEXTS = ("data.columns.", "data.prompts.", "model.template", "views.positive_template")  # no names of files


def public_value(field: str, value: Any, hub: Collection[str] | None = None) -> str:
    """A field's value without the folders of files: `/home/me/corpus.csv` becomes `corpus.csv`.

    `hub`: the fields whose values are the hub's, as `from_hub` found them; None where that was not recorded. Then a
    name with one slash is a hub id if the field can hold one and neither that folder nor its parent exists here.
    """
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    if not isinstance(value, str) or field.startswith(TEXTS):
        return str(value)
    if len(parts := sources(field, value)) > 1:
        return ",".join(public_value(field, part, hub) for part in parts)
    kind, colon, rest = value.partition(":")
    if colon and kind in ("hf", "tfds"):
        name, *further = rest.split(":")
        keep = is_from_hub(field, value, hub) if kind == "hf" else is_hub_id(name)
        return ":".join([kind, name if keep else base_name(name), *further])
    if field in LISTS and colon and kind == "sts":
        return f"sts:{base_name(rest)}"
    if field in MODELS and value.startswith("package:"):
        return value
    if field in MODELS and split_glove(value) is not None:
        return f"{kind}:{base_name(rest)}"
    return value if is_from_hub(field, value, hub) else base_name(value)


def from_hub(config: Mapping[str, Any]) -> list[str]:
    """The fields of a flat config whose values were fetched from the hub, in a process that has just read them."""
    names = {field: [_hub_name(field, part) for part in sources(field, value)] for field, value in config.items()}
    return [
        field
        for field, parts in names.items()
        if any(name and split_name(name) and not local_path(name).exists() for name in parts)
    ]


def sources(field: str, value: Any) -> list[Any]:
    """The names in a field's value; data may have several, with commas in between."""
    if field not in LISTS or not isinstance(value, str) or "," not in value or local_path(value).exists():
        return [value]
    return next(csv.reader([value], skipinitialspace=True))


def is_from_hub(field: str, value: Any, hub: Collection[str] | None) -> bool:
    """Whether a field's value is the hub's; the arguments are those of `public_value`."""
    name = _hub_name(field, value)
    # A list may have folders next to the hub's names.
    return bool(name) and (is_hub_id(name) if hub is None else field in hub and split_name(name) is not None)


def _hub_name(field: str, value: Any) -> str:
    """The part of a value that may be a hub id; empty if it cannot have one."""
    if not isinstance(value, str):
        return ""
    if value.startswith("hf:"):
        return value.split(":")[1]
    return value if field in MODELS else ""


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
