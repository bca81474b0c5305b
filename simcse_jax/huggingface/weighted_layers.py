"""The poolers that average hidden states of several layers, as sentence-transformers' WeightedLayerPooling."""

from pathlib import Path

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.host.storage import read_json
from simcse_jax.huggingface.module_files import Unsupported
from simcse_jax.huggingface.weight_files import read_weights
from simcse_jax.models.pooling import FIRST_TOKEN

# The poolers that average two hidden states, and which; -1 is the last.
AVERAGED = {"avg_top2": (-2, -1), "avg_first_last": (1, -1), "avg_static_last": (0, -1)}


def read_layers(folder: Path, pooler: str) -> str:
    """Our pooler that equals a weighted mean of layers and then `pooler`.

    Raises:
      Unsupported: when none of ours does.
    """
    config = read_json(folder / "config.json")
    start, layers = config.get("layer_start", 4), config.get("num_hidden_layers", 12)
    tensors, path = read_weights(folder)
    weights = tensors.get("layer_weights")
    counted = isinstance(start, int) and isinstance(layers, int) and start >= 0
    if not counted or weights is None or weights.shape != (layers + 1 - start,):
        raise UserError(f"{path}: damaged: it must have a weight for each layer from {start!r:.20} to {layers!r:.20}")
    whole = np.concatenate([np.zeros(start), np.asarray(weights, np.float64)])
    for name in (pooler, *(AVERAGED if pooler == "avg" else ())):
        ours = layer_weights(name, layers) if name != pooler else np.append(np.zeros(layers), 1)
        if ours is not None and np.array_equal(whole * ours.sum(), ours * whole.sum()):
            return name
    raise Unsupported(f"{path}: these weights of layers before the pooling {pooler} are not supported")


def layer_weights(pooler: str, num_layers: int) -> np.ndarray | None:
    """(L + 1,) weights of the hidden states, for the poolers that average layers; None for the others."""
    if pooler not in AVERAGED:
        return None
    weights = np.zeros(num_layers + 1, np.float32)
    for layer in AVERAGED[pooler]:
        weights[layer] += 1
    return weights


def pooling_for(pooler: str, num_layers: int) -> tuple[str, np.ndarray | None]:
    """What one of our poolers is written as: a pooling of tokens, and (L + 1,) weights of the layers before it."""
    weights = layer_weights(pooler, num_layers)
    return "cls" if pooler in FIRST_TOKEN else "avg" if weights is not None else pooler, weights


def is_written_as(pooler: str, num_layers: int, read: str) -> bool:
    """Whether modules that were read as the pooler `read` are what `pooler` is written as."""
    last = np.append(np.zeros(num_layers), 1)
    one, other = (
        (tokens, (last if weights is None else weights / weights.sum()).tolist())
        for tokens, weights in (pooling_for(pooler, num_layers), pooling_for(read, num_layers))
    )
    return one == other
