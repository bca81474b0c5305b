"""Reads the modules of a sentence-transformers folder. `write.py` writes them."""

import enum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.huggingface.weight_files import read_weights
from simcse_jax.storage import read_json

LISTING = "modules.json"  # lists a folder's modules


class Kind(enum.StrEnum):
    """The supported modules, by the last part of their type."""

    TRANSFORMER = "Transformer"
    LAYERS = "WeightedLayerPooling"  # averages the hidden states; written, not read
    POOLING = "Pooling"
    DENSE = "Dense"
    NORMALIZE = "Normalize"  # read, not written


# The switches `pooling_mode_…` of a pooling module, and their poolers.
POOLING_SWITCHES = {"cls_token": "cls", "mean_tokens": "avg", "max_tokens": "max", "mean_sqrt_len_tokens": None}
# The values of the field `pooling_mode`, which newer versions write instead, and their poolers.
POOLING_MODES = {"cls": "cls", "mean": "avg", "max": "max"}


class Modules(NamedTuple):
    """The contents of `modules.json` and the modules that it lists."""

    transformer: Path  # the encoder's folder
    pooler: str | None  # None: not supported, `pooling` describes it
    pooling: str
    dense: dict[str, np.ndarray]  # the head's tensors, by the names of BERT's pooler; empty without a head
    normalize: bool  # whether embeddings should have unit length


def read_modules(folder: Path) -> Modules:
    """Reads a folder's `modules.json` and the modules that it lists.

    Raises:
      UserError: when one of their files is missing or damaged.
    """
    listing = read_json(folder / LISTING, kind=list)
    modules = [(folder / module.get("path", ""), str(module.get("type", "")).rpartition(".")[2]) for module in listing]
    transformer = next((path for path, kind in modules if kind == Kind.TRANSFORMER), folder)
    pooler, pooling = None, "none"
    dense: dict[str, np.ndarray] = {}
    lacking = []
    for place, (path, kind) in enumerate(modules):
        if kind == Kind.POOLING:
            pooler, pooling = _read_pooling(path)
        elif kind == Kind.DENSE and not dense:
            dense = _read_dense(path, read_json(transformer / "config.json").get("hidden_size", 0))
            if not dense:
                lacking.append("a dense layer other than D→D with tanh")
        elif kind == Kind.NORMALIZE and place < len(modules) - 1:
            lacking.append("a normalization before the last module")
        elif kind not in (Kind.TRANSFORMER, Kind.NORMALIZE):
            lacking.append(f"the module {kind}")
    if lacking:
        pooler, pooling, dense = None, " and ".join([pooling, *lacking]), {}
    return Modules(transformer, pooler, pooling, dense, any(kind == Kind.NORMALIZE for _, kind in modules))


def _read_pooling(folder: Path) -> tuple[str | None, str]:
    """The pooler that corresponds to a pooling module, and its description."""
    config = read_json(folder / "config.json")
    modes = [key.removeprefix("pooling_mode_") for key, on in config.items() if key.startswith("pooling_mode_") and on]
    if isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"]]
    known = POOLING_SWITCHES | POOLING_MODES
    return (known.get(modes[0]) if len(modes) == 1 else None), " + ".join(modes)


def _read_dense(folder: Path, size: int) -> dict[str, np.ndarray]:
    """The tensors of a dense D→D module with tanh; none for any other."""
    config = read_json(folder / "config.json")
    if not config.get("in_features") == config.get("out_features") == size:
        return {}
    if not str(config.get("activation_function", "Tanh")).endswith("Tanh"):
        return {}
    tensors, path = read_weights(folder)
    weight = tensors.get("linear.weight")
    if weight is None:
        raise UserError(f"{path}: the tensor 'linear.weight' is missing")
    return {"pooler.dense.weight": weight, "pooler.dense.bias": tensors.get("linear.bias", np.zeros(size, np.float32))}
