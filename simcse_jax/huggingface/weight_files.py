"""Reads the tensors of a folder in Hugging Face format, from any of the usual files, and writes safetensors.

Tensors of safetensors are read from the disk where their elements are used, so a model that is converted one tensor at
a time is never in memory twice. They change with the file: what outlives the conversion must be a copy.

A `pytorch_model.bin` is read without PyTorch and without running code from the file, in both layouts: the zip archive
(PyTorch 1.6 and later) and the older stream of pickles. The places of all tensors are checked before any of their data
is read, and no more is read than the file has bytes, whatever it says.
"""

import io
import json
import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from simcse_jax.errors import UserError, reason, system_message
from simcse_jax.host.storage import local_path, read_json
from simcse_jax.huggingface.torch_pickle import LIMIT, Tensor, TorchStorage, read_pickle

NAMES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
# The types of safetensors that NumPy has too.
TYPES = {f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)}
TYPES |= {f"{sign}{bits}": np.dtype(f"<{sign.lower()}{bits // 8}") for sign in "IU" for bits in (8, 16, 32, 64)}
TYPES |= {"BF16": np.dtype(ml_dtypes.bfloat16), "C64": np.dtype("<c8"), "BOOL": np.dtype(bool)}
METADATA = "__metadata__"  # in the header of safetensors, besides the tensors
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of one safetensors file, by name, as read-only views of the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:  # checks that each has its place in the file
            types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        other = next((name for name in types if types[name] not in TYPES), None)
        if other is not None:
            raise UserError(f"{path}: {other!r} has the type {types[other]}; convert the weights to F32, F16 or BF16")
        return _mapped(path)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path}: truncated or damaged ({reason(error)}); download it again") from None


def _mapped(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file that has been checked: the length of its JSON, the JSON, and the tensors' bytes."""
    content = np.asarray(np.memmap(path, np.uint8, mode="r"))
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    header = json.loads(content[8:start].tobytes())
    places = {name: [start + offset for offset in header[name]["data_offsets"]] for name in header.keys() - {METADATA}}
    return {
        name: content[first:end].view(TYPES[header[name]["dtype"]]).reshape(header[name]["shape"])
        for name, (first, end) in places.items()
    }


def read_weights(folder: Path) -> tuple[dict[str, np.ndarray], Path]:
    """The tensors of a model folder, of safetensors as views of their files, and the file that they come from.

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


def read_torch_file(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a PyTorch state dictionary, by name; read-only views of its storages."""
    try:
        with open(path, "rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            tensors, buffers = (_read_zip if is_zip else _read_legacy)(file)
        return {name: _array(tensor, buffers[tensor.storage.key]) for name, tensor in tensors.items()}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {system_message(error)}") from None
    except Exception as error:  # a damaged file can break in any way
        raise UserError(
            f"{path}: not a readable PyTorch file ({reason(error)}); download or convert it again"
        ) from None


def _read_zip(file: IO[bytes]) -> tuple[dict[str, Tensor], dict[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        index = next((name for name in archive.namelist() if name.endswith("data.pkl")), None)
        if index is None:
            raise ValueError("the archive has no data.pkl")
        root = index.removesuffix("data.pkl")
        if root + "byteorder" in archive.namelist() and _read(archive, root + "byteorder", 6) != b"little":
            raise ValueError("its numbers are not little-endian")
        content, storages = read_pickle(io.BytesIO(_read(archive, index, LIMIT)))
        tensors = _tensors(content)
        needed = {tensor.storage.key for tensor in tensors.values()}
        by_key = {key: storage for key, storage in _by_key(storages, file).items() if key in needed}
        for key, storage in by_key.items():
            if archive.getinfo(f"{root}data/{key}").file_size != storage.size:
                raise ValueError(f"storage {key} does not have the {storage.elements} elements that it should have")
        return tensors, {key: archive.read(f"{root}data/{key}") for key in by_key}


def _read(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """A file of the archive; `limit` is the most bytes that it may have."""
    if archive.getinfo(name).file_size > limit:
        raise ValueError(f"{name} has {archive.getinfo(name).file_size} bytes, more than {limit}")
    return archive.read(name)


def _read_legacy(file: IO[bytes]) -> tuple[dict[str, Tensor], dict[str, bytes]]:
    if read_pickle(file)[0] != LEGACY_MAGIC:
        raise ValueError("it is not a PyTorch file")
    read_pickle(file)  # the version
    system, _ = read_pickle(file)
    if not (isinstance(system, dict) and system.get("little_endian", True)):
        raise ValueError("its numbers are not little-endian")
    content, storages = read_pickle(file)
    tensors, by_key = _tensors(content), _by_key(storages, file)
    keys, _ = read_pickle(file)
    if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(by_key):
        raise ValueError("its list of storages is damaged")
    buffers = {}
    for key in map(str, keys):
        storage = by_key[key]
        if int.from_bytes(file.read(8), "little") != storage.elements:
            raise ValueError(f"storage {key} does not have the {storage.elements} elements that it should have")
        buffers[key] = file.read(storage.size)
        if len(buffers[key]) != storage.size:
            raise EOFError("the file ends early")
    return tensors, buffers


def _tensors(content: Any) -> dict[str, Tensor]:
    """The tensors of a state dictionary, or of a checkpoint that has one; all lie within their storages."""
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict):
        raise ValueError("it holds no dictionary of tensors")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    for name, tensor in tensors.items():
        elements = math.prod(tensor.shape)
        last = tensor.offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
        if elements and last >= tensor.storage.elements:
            raise ValueError(f"the tensor {name} reaches beyond its storage")
        if elements > tensor.storage.elements:
            raise ValueError(f"the tensor {name} has more elements than its storage")
    return tensors


def _by_key(storages: list[TorchStorage], file: IO[bytes]) -> dict[str, TorchStorage]:
    """The storages by key; together they have at most as many bytes as the file."""
    by_key, size = dict[str, TorchStorage](), os.fstat(file.fileno()).st_size
    for storage in storages:
        if by_key.setdefault(storage.key, storage) != storage:
            raise ValueError(f"storage {storage.key} is described in two ways")
    if (total := sum(storage.size for storage in by_key.values())) > size:
        raise ValueError(f"its tensors have {total} bytes, the file only {size}")
    return by_key


def _array(tensor: Tensor, buffer: bytes) -> np.ndarray:
    if 0 in tensor.shape:
        return np.zeros(tensor.shape, tensor.storage.dtype)
    flat = np.frombuffer(buffer, tensor.storage.dtype)
    strides = [step * flat.itemsize for step in tensor.stride]
    return np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, strides, writeable=False)
