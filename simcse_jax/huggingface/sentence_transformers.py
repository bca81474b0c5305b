"""The modules of a sentence-transformers folder."""

from pathlib import Path

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.huggingface.weight_files import read_weights
from simcse_jax.storage import read_json


def _pooling_module(folder: Path) -> tuple[str | None, str]:
    """The pooler that a sentence-transformers pooling module stands for, and its description."""
    config = read_json(folder / "config.json")
    modes = [key.removeprefix("pooling_mode_") for key, on in config.items() if key.startswith("pooling_mode_") and on]
    if isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"]]
    known = {"cls_token": "cls", "cls": "cls", "mean_tokens": "avg", "mean": "avg"}
    known |= {"max_tokens": "max", "max": "max"}
    return (known.get(modes[0]) if len(modes) == 1 else None), " + ".join(modes)


def _dense_head(folder: Path, size: int) -> dict[str, np.ndarray] | None:
    """The tensors of a dense D→D module with tanh; None for any other."""
    config = read_json(folder / "config.json")
    if not config.get("in_features") == config.get("out_features") == size:
        return None
    if not str(config.get("activation_function", "Tanh")).endswith("Tanh"):
        return None
    tensors, path = read_weights(folder)
    weight = tensors.get("linear.weight")
    if weight is None:
        raise UserError(f"{path}: the tensor 'linear.weight' is missing")
    return {"pooler.dense.weight": weight, "pooler.dense.bias": tensors.get("linear.bias", np.zeros(size, np.float32))}


def _sentence_transformers(folder: Path) -> tuple[Path, str | None, str, dict[str, np.ndarray], bool]:
    """Reads `modules.json`: the transformer's folder, pooler, its description, a dense head's tensors, Normalize."""
    listing = read_json(folder / "modules.json", kind=list)
    modules = [(folder / module.get("path", ""), str(module.get("type", "")).rpartition(".")[2]) for module in listing]
    transformer = next((path for path, kind in modules if kind == "Transformer"), folder)
    pooler, pooling, head, lacking = None, "none", {}, []
    for place, (path, kind) in enumerate(modules):
        if kind == "Pooling":
            pooler, pooling = _pooling_module(path)
        elif kind == "Dense" and not head:
            head = _dense_head(path, read_json(transformer / "config.json").get("hidden_size", 0)) or {}
            if not head:
                lacking.append("a dense layer that is not a D→D one with tanh")
        elif kind == "Normalize" and place < len(modules) - 1:
            lacking.append("a normalization that is not its last module")
        elif kind not in ("Transformer", "Normalize"):
            lacking.append(f"the module {kind}")
    if lacking:
        pooler, pooling, head = None, " and ".join([pooling, *lacking]), {}
    return transformer, pooler, pooling, head, any(kind == "Normalize" for _, kind in modules)
