"""Reads the tensors of a `pytorch_model.bin` without PyTorch and without running code from the file.

Both layouts are read: the zip archive (PyTorch 1.6 and later) and the older stream of pickles. The places of all
tensors are checked before any of their data is read, and no more is read than the file has bytes, whatever it says.
"""

import io
import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from simcse_jax.errors import UserError, reason, why
from simcse_jax.huggingface.torch_pickle import LIMIT, Storage, Tensor, read_pickle

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def read_torch_file(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a PyTorch state dictionary, by name; read-only views of its storages."""
    try:
        with open(path, "rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            tensors, buffers = (_read_zip if is_zip else _read_legacy)(file)
        return {name: _array(tensor, buffers[tensor.storage.key]) for name, tensor in tensors.items()}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
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
        by_key = {key: storage for key, storage in _by_key(storages, _size(file)).items() if key in needed}
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
    tensors, by_key = _tensors(content), _by_key(storages, _size(file))
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


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


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


def _by_key(storages: list[Storage], size: int) -> dict[str, Storage]:
    """The storages by key; together they have at most as many bytes as the file, `size`."""
    by_key: dict[str, Storage] = {}
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
