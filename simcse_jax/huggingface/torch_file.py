"""Reads the tensors of a `pytorch_model.bin` without PyTorch and without running code from the file.

A pickle can call any function. This reader allows only the few that rebuild tensors, and supplies
its own versions of those; a file that asks for anything else is refused. Both layouts are read: the zip
archive (PyTorch 1.6 and later) and the older stream of pickles.
"""

import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np

from simcse_jax.errors import UserError

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
STORAGES: dict[str, np.dtype] = {
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype("<u2"),  # widened to float32 below
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}


class _Storage(NamedTuple):
    kind: str
    key: str


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def _rebuild_tensor(storage: _Storage, offset: int, shape: tuple, stride: tuple, *unused: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(stride))


def _rebuild_parameter(tensor: _Tensor, *unused: Any) -> _Tensor:
    return tensor


class _Unpickler(pickle.Unpickler):
    ALLOWED: ClassVar = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    }

    def __init__(self, file: IO[bytes]):
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}  # the storages of the tensors

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in STORAGES:
            return name
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks to run {module}.{name}, which a file of weights never needs")
        return self.ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, key, *_ = pid
        return self.storages.setdefault(str(key), _Storage(kind, str(key)))


def _array(tensor: _Tensor, buffers: dict[str, bytes]) -> np.ndarray:
    flat = np.frombuffer(buffers[tensor.storage.key], STORAGES[tensor.storage.kind])
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))
    if 0 not in tensor.shape and not 0 <= last < len(flat):
        raise ValueError("a tensor reaches beyond its storage")
    strides = [stride * flat.itemsize for stride in tensor.stride]
    view = np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, strides, writeable=False)
    if tensor.storage.kind == "BFloat16Storage":
        return (view.astype(np.uint32) << 16).view(np.float32)
    return view.copy()


def _read_zip(file: IO[bytes]) -> tuple[Any, dict[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        index = next((name for name in names if name.endswith("data.pkl")), None)
        if index is None:
            raise ValueError("the archive has no data.pkl")
        root = index.removesuffix("data.pkl") + "data/"
        with archive.open(index) as pickled:
            content = _Unpickler(pickled).load()
        return content, {name.removeprefix(root): archive.read(name) for name in names if name.startswith(root)}


def _read_legacy(file: IO[bytes]) -> tuple[Any, dict[str, bytes]]:
    if _Unpickler(file).load() != LEGACY_MAGIC:
        raise ValueError("it is not a PyTorch file")
    for _ in ("protocol version", "system information"):
        _Unpickler(file).load()
    unpickler = _Unpickler(file)
    content = unpickler.load()
    buffers = {}
    for key in _Unpickler(file).load():
        count = int.from_bytes(file.read(8), "little")
        size = count * STORAGES[unpickler.storages[str(key)].kind].itemsize
        buffers[str(key)] = file.read(size)
        if len(buffers[str(key)]) != size:
            raise EOFError("the file ends early")
    return content, buffers


def read_torch_file(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a PyTorch state dictionary, by name (bfloat16 widened to float32).

    Raises:
      UserError: for a file that is damaged, or contains more than tensors.
    """
    try:
        with open(path, "rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            content, buffers = (_read_zip if is_zip else _read_legacy)(file)
        content = content.get("state_dict", content)
        return {name: _array(value, buffers) for name, value in content.items() if isinstance(value, _Tensor)}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except Exception as error:  # a pickle can break in any way
        raise UserError(f"{path}: not a readable PyTorch file ({error}); download or convert it again") from None
