"""Reads the tensors of a folder in Hugging Face format, from any of the usual files."""

from pathlib import Path

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.huggingface.torch_file import read_torch_file
from simcse_jax.storage import read_json

NAMES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of one safetensors file, by name.

    Raises:
      UserError: when the file is missing, truncated or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path}: truncated or damaged ({error}); download it again") from None


def read_weights(folder: Path) -> tuple[dict[str, np.ndarray], Path]:
    """The tensors of a model folder, and the file that they come from.

    Looks for `model.safetensors`, then for its shards, then for `pytorch_model.bin` (whole or sharded).

    Raises:
      UserError: when there are none, a shard is missing, or a file is damaged.
    """
    path = next((folder / name for name in NAMES if (folder / name).is_file()), None)
    if path is None:
        raise UserError(f"{folder}: no weights; it must have one of {', '.join(NAMES)}")
    read = read_safetensors if ".safetensors" in path.name else read_torch_file
    if path.suffix != ".json":
        return read(path), path
    shards = read_json(path).get("weight_map")
    if not isinstance(shards, dict):
        raise UserError(f"{path}: has no 'weight_map'")
    tensors: dict[str, np.ndarray] = {}
    for shard in sorted(set(shards.values())):
        if not (folder / shard).is_file():
            raise UserError(f"{path}: its shard {shard} is missing; download it again")
        tensors |= read(folder / shard)
    return tensors, path
