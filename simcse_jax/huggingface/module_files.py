"""The files of one module of sentence-transformers, and the error for what is not read here."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.huggingface.names import as_float32
from simcse_jax.huggingface.weight_files import read_weights


class Unsupported(UserError):
    """Something that changes the embeddings and is not read here, in one line that names it and its file."""


def read_tensors(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The tensors of a module by name, float32.

    Args:
      shapes: what it must have, and nothing else.

    Raises:
      Unsupported: for a tensor that is not listed.
    """
    tensors, path = read_weights(folder)
    for name, shape in shapes.items():
        if name not in tensors:
            raise UserError(f"{path}: the tensor {name!r} is missing")
        if tensors[name].shape != shape:
            raise UserError(f"{path}: the tensor {name!r} has shape {tensors[name].shape}, not {shape}")
    if other := tensors.keys() - shapes.keys():
        raise Unsupported(f"{path}: the tensor {min(other)!r} is not supported")
    return {name: as_float32(tensors[name], name, str(path)) for name in shapes}
