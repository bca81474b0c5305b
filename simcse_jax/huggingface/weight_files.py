"""Reads the tensors of a folder in Hugging Face format, from any of the usual files, and writes safetensors.

Tensors of safetensors are read from the disk where their elements are used, so a model that is converted one tensor at
a time is never in memory twice. They change with the file: what outlives the conversion must be a copy.

A `pytorch_model.bin` is read without PyTorch and without running code from the file, in both layouts: the zip archive
(PyTorch 1.6 and later) and the older stream of pickles.
"""

import io
import json
import math
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np

from simcse_jax.errors import UserError, reason, system_message
from simcse_jax.host.storage import local_path, read_json

NAMES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
# The types of safetensors that NumPy has too.
TYPES = {f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)}
TYPES |= {f"{sign}{bits}": np.dtype(f"<{sign.lower()}{bits // 8}") for sign in "IU" for bits in (8, 16, 32, 64)}
TYPES |= {"BF16": np.dtype(ml_dtypes.bfloat16), "C64": np.dtype("<c8"), "BOOL": np.dtype(bool)}
METADATA = "__metadata__"  # in the header of safetensors, besides the tensors
# The types of PyTorch's storages.
STORAGES: dict[str, np.dtype] = {
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of one safetensors file, by name, as read-only views of the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):  # checks that each has its place in the file
            return _mapped(path)
    except KeyError as error:
        raise UserError(f"{path}: has weights of the type {error}; convert them to F32, F16 or BF16") from None
    except (OSError, SafetensorError, ValueError) as error:
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
    if not isinstance(shards, dict):
        raise UserError(f"{path}: has no 'weight_map' with the name of a file for each tensor")
    tensors: dict[str, np.ndarray] = {}
    for shard in sorted(set(map(str, shards.values()))):
        if Path(shard).name != shard:
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
            content, storages = (_read_zip if is_zip else _read_legacy)(file)
        content = content.get("state_dict", content)  # of a checkpoint
        return {str(name): _array(x, storages) for name, x in content.items() if isinstance(x, _Tensor)}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {system_message(error)}") from None
    except Exception as error:  # a damaged file can break in any way
        raise UserError(
            f"{path}: not a readable PyTorch file ({reason(error)}); download or convert it again"
        ) from None


class _Tensor(NamedTuple):
    """A part of a storage, in elements."""

    dtype: np.dtype
    key: str  # of the storage
    offset: int
    shape: Sequence[int]
    stride: Sequence[int]


class _Unpickler(pickle.Unpickler):
    """Knows the few names that tensors need, and has functions of its own for them; it calls nothing else."""

    def __init__(self, file: IO[bytes]):
        super().__init__(file)
        self.dtypes: dict[str, np.dtype] = {}  # of the storages, by key

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in STORAGES:
            return name
        if module == "torch._utils" and name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
            return lambda storage, *arguments: _Tensor(*storage, *arguments[:3])
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *unused: tensor
        raise ValueError(f"it asks for {module}.{name}; only plain tensors are read")

    def persistent_load(self, pid: Any) -> tuple[np.dtype, str]:
        _, kind, key, _, _, *view = pid
        if any(view):
            raise ValueError(f"its storage {key} is a view of another one")
        self.dtypes[str(key)] = STORAGES[kind]
        return STORAGES[kind], str(key)


def _read_zip(file: IO[bytes]) -> tuple[Any, dict[str, bytes]]:
    """The content of the pickle, and the storages by key."""
    with zipfile.ZipFile(file) as archive:
        if sum(info.file_size for info in archive.infolist()) > os.fstat(file.fileno()).st_size:
            raise ValueError("its parts have more bytes than the file")  # PyTorch does not compress
        root = next(name for name in archive.namelist() if name.endswith("data.pkl")).removesuffix("data.pkl")
        if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
            raise ValueError("its numbers are not little-endian")
        content = _Unpickler(io.BytesIO(archive.read(f"{root}data.pkl"))).load()
        names = [name for name in archive.namelist() if name.startswith(f"{root}data/")]
        return content, {name.removeprefix(f"{root}data/"): archive.read(name) for name in names}


def _read_legacy(file: IO[bytes]) -> tuple[Any, dict[str, bytes]]:
    if _Unpickler(file).load() != LEGACY_MAGIC:
        raise ValueError("it is not a PyTorch file")
    for _ in ("version", "system"):
        _Unpickler(file).load()
    unpickler, storages = _Unpickler(file), {}
    content, keys = unpickler.load(), _Unpickler(file).load()
    for key in map(str, keys):
        size = int.from_bytes(file.read(8), "little") * unpickler.dtypes[key].itemsize
        storages[key] = file.read(size)
    return content, storages


def _array(tensor: _Tensor, storages: Mapping[str, bytes]) -> np.ndarray:
    if not isinstance(tensor.dtype, np.dtype):  # else a pickle could give one of objects, which are addresses
        raise ValueError("its pickle is damaged")
    size, content = tensor.dtype.itemsize, storages[tensor.key]
    # NumPy's own check of the strides overflows, and knows none of elements that are shared.
    last = tensor.offset + sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride, strict=True))
    if min((0, *tensor.shape, *tensor.stride)) < 0 or max(math.prod(tensor.shape), last + 1) * size > len(content):
        raise ValueError(f"a tensor reaches beyond its storage {tensor.key}")
    strides = [step * size for step in tensor.stride]
    return np.ndarray(tuple(tensor.shape), tensor.dtype, content, tensor.offset * size, strides)
