"""Interprets the pickle of a PyTorch file, instruction by instruction, without the module `pickle`.

A pickle can call any function, and a crafted one can crash or exhaust `pickle` itself. This interpreter knows only the
instructions of a dictionary of tensors, and only the functions that rebuild tensors; it supplies its own versions of
those. A file that asks for anything else is refused.
"""

import pickletools
from collections.abc import Callable, Iterable
from typing import IO, Any, NamedTuple, cast

import ml_dtypes
import numpy as np

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
LIMIT = 1 << 22  # bytes of a pickle, those of 20,000 tensors: an instruction can make an object of 64 bytes
MOST_DIMENSIONS = 64  # of an array of NumPy

VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING"),
}
MADE: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
MADE |= {"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class TorchStorage(NamedTuple):
    """The elements that tensors share, by their place in the file."""

    kind: str  # of STORAGES
    key: str
    elements: int

    @property
    def dtype(self) -> np.dtype:
        """The type of an element."""
        return STORAGES[self.kind]

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.elements * self.dtype.itemsize


class Tensor(NamedTuple):
    """A part of a storage, in elements."""

    storage: TorchStorage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def read_pickle(file: IO[bytes]) -> tuple[Any, list[TorchStorage]]:
    """The value of the next pickle in the file, with a `Tensor` for each tensor, and the storages that it names.

    Raises:
      ValueError: for a pickle that is damaged, or has more than tensors.
      EOFError: when the file ends early.
    """
    try:
        return _run(file)
    except (IndexError, KeyError, TypeError):  # an instruction has not the values that it needs
        raise ValueError("its pickle is damaged") from None


class _Stack(list[Any]):
    """The stack of values that instructions push and pop."""

    def __init__(self) -> None:
        super().__init__()
        self._marks: list[int] = []

    def mark(self, count: int = 0) -> None:
        """Remembers the place below the last `count` values."""
        self._marks.append(len(self) - count)

    def pop_to_mark(self) -> list[Any]:
        """Takes all values above the last mark."""
        first = self._marks.pop()
        values = self[first:]
        del self[first:]
        return values


def _run(file: IO[bytes]) -> tuple[Any, list[TorchStorage]]:
    start = file.tell()
    storages: list[TorchStorage] = []
    used = 0  # elements of arguments; a pickle can name a long list in three bytes, again and again
    stack = _Stack()
    memo: dict[int, Any] = {}
    for instruction, value, place in pickletools.genops(file):
        argument, name = cast(Any, value), instruction.name
        if (place or 0) - start > LIMIT:
            raise ValueError(f"its pickle is longer than {LIMIT} bytes")
        if name in VALUES:
            stack.append(argument)
        elif name in MADE:
            stack.append(MADE[name]())
        elif name == "MARK":
            stack.mark()
        elif name == "TUPLE" or name in TUPLES:
            if name in TUPLES:
                stack.mark(TUPLES[name])
            stack.append(tuple(stack.pop_to_mark()))
        elif name in ("APPEND", "APPENDS"):
            values = [stack.pop()] if name == "APPEND" else stack.pop_to_mark()
            _check(isinstance(stack[-1], list))
            stack[-1].extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = [stack.pop(-2), stack.pop()] if name == "SETITEM" else stack.pop_to_mark()
            _check(isinstance(stack[-1], dict))
            stack[-1] |= _dictionary(zip(values[::2], values[1::2], strict=True))
        elif name == "BUILD":  # attributes of a dictionary, such as `_metadata`
            stack.pop()
            _check(isinstance(stack[-1], dict))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(_find(*(argument.split(" ", 1) if name == "GLOBAL" else (stack.pop(-2), stack.pop()))))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            _check(function in FUNCTIONS.values() and isinstance(arguments, tuple))
            used += len(arguments) + sum(len(value) for value in arguments if isinstance(value, list | tuple | dict))
            _check(used <= LIMIT)
            stack.append(function(*arguments))
        elif name == "BINPERSID":
            used += len(stack[-1])
            _check(used <= LIMIT)
            storages.append(_storage(*stack.pop()))
            stack.append(storages[-1])
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "STOP":
            return stack.pop(), storages
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"its pickle has the instruction {name}, which tensors do not need")
    raise ValueError("its pickle has no end")


def _check(is_valid: bool) -> None:
    if not is_valid:
        raise ValueError("its pickle is damaged")


def _find(module: str, name: str) -> Any:
    if module == "torch" and name in STORAGES:
        return name
    if (module, name) not in FUNCTIONS:
        raise ValueError(f"it asks for {module}.{name}; only plain tensors are read")
    return FUNCTIONS[module, name]


def _dictionary(pairs: Iterable[Any] = ()) -> dict[Any, Any]:
    entries = {}
    for key, value in pairs:
        _check(isinstance(key, str | int))
        entries[key] = value
    return entries


def _storage(word: str, kind: str, key: Any, device: Any, count: int, view: Any = None, *further: Any) -> TorchStorage:
    _check(word == "storage" and isinstance(kind, str) and kind in STORAGES)
    _check(isinstance(key, str | int) and _are_sizes([count]))
    if view is not None:
        raise ValueError(f"its storage {key} is a view of another one")
    return TorchStorage(kind, str(key), count)


def _tensor(
    storage: TorchStorage,
    offset: int,
    shape: Any,
    stride: Any,
    trained: Any = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    _check(isinstance(storage, TorchStorage) and _are_sizes([offset]))
    _check(isinstance(shape, tuple | list) and isinstance(stride, tuple | list) and len(shape) == len(stride))
    _check(len(shape) <= MOST_DIMENSIONS)
    if not _are_sizes(shape) or not _are_sizes(stride):
        raise ValueError("a tensor has a negative size or stride")
    if metadata:
        raise ValueError("a tensor is marked as negated or conjugated")
    return Tensor(storage, offset, tuple(shape), tuple(stride))


def _are_sizes(values: Iterable[Any]) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): _dictionary,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *unused: tensor,
}
