"""Reads the tensors of a folder in Hugging Face format, from any of the usual files, and writes safetensors."""

from pathlib import Path

import numpy as np

from simcse_jax.errors import UserError, reason
from simcse_jax.host.storage import local_path, read_json
from simcse_jax.huggingface.torch_file import read_torch_file

NAMES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")

# The types of safetensors that NumPy has too.
TYPES = {"F64", "F32", "F16", "BF16", "C64", "BOOL", *(f"{sign}{bits}" for sign in "IU" for bits in (8, 16, 32, 64))}


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of one safetensors file, by name."""
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import load_file

    try:
        with safe_open(path, framework="numpy") as file:
            types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        other = next((name for name in types if types[name] not in TYPES), None)
        if other is not None:
            raise UserError(f"{path}: {other!r} has the type {types[other]}; convert the weights to F32, F16 or BF16")
        return load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path}: truncated or damaged ({reason(error)}); download it again") from None


def read_weights(folder: Path) -> tuple[dict[str, np.ndarray], Path]:
    """The tensors of a model folder, and the file that they come from.

    Looks for `model.safetensors`, then for its shards, then for `pytorch_model.bin` (whole or sharded).
    """
    path = next((folder / name for name in NAMES if (folder / name).is_file()), None)
    if path is None:
        raise UserError(f"{folder}: no weights; it must have one of {', '.join(NAMES)}")
    read = read_safetensors if ".safetensors" in path.name else read_torch_file
    if path.suffix != ".json":
        return read(path), path
    shards = read_json(path).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise UserError(f"{path}: has no 'weight_map' with the name of a file for each tensor")
    tensors: dict[str, np.ndarray] = {}
    for shard in sorted(set(shards.values())):
        if not (shard and shard.isprintable() and Path(shard).name == shard):
            raise UserError(f"{path}: its shard {shard!r:.60} is not the name of a file in the folder")
        if not local_path(folder / shard).is_file():
            raise UserError(f"{path}: its shard {shard} is missing; download it again")
        tensors |= read(folder / shard)
    return tensors, path


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes tensors by name, with the metadata that transformers requires."""
    from safetensors.numpy import save

    path.write_bytes(save(tensors, metadata={"format": "pt"}))  # `save_file` would make it readable by the owner alone
