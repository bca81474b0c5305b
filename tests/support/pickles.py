"""Pickles as PyTorch writes them, made without it, so that they can be wrong."""

import io
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple


class Call(NamedTuple):
    """Of a function by its name; without arguments the function itself."""

    module: str
    name: str
    arguments: tuple | None = None


class Persistent(tuple):
    """A reference to a storage."""

    def __new__(cls, *fields: Any) -> "Persistent":
        return super().__new__(cls, fields)


def storage(kind: str, key: str, count: int, *view: Any) -> Persistent:
    return Persistent("storage", Call("torch", kind), key, "cpu", count, *view)


def tensor(*arguments: Any) -> Call:
    return Call("torch._utils", "_rebuild_tensor_v2", arguments)


def whole(value: Any) -> bytes:
    return b"\x80\x02" + parts(value) + b"."


def archive(content: Any, storages: Mapping[str, bytes]) -> bytes:
    """A file as torch.save writes it, with these storages by their keys."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        file.writestr("archive/version", "3\n")
        file.writestr("archive/data.pkl", whole(content))
        for key, data in storages.items():
            file.writestr(f"archive/data/{key}", data)
    return sink.getvalue()


def parts(value: Any) -> bytes:
    """The instructions for a value; bytes are instructions themselves."""
    match value:
        case bytes():
            return value
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"\x8a\x20" + value.to_bytes(32, "little", signed=True)
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()
        case Call(module, name, arguments):
            called = b"" if arguments is None else parts(tuple(arguments)) + b"R"
            return f"c{module}\n{name}\n".encode() + called
        case Persistent():
            return parts(tuple(value)) + b"Q"
        case tuple():
            return b"(" + b"".join(map(parts, value)) + b"t"
        case list():
            return b"](" + b"".join(map(parts, value)) + b"e"
        case dict():
            return b"}(" + b"".join(parts(part) for item in value.items() for part in item) + b"u"
    raise TypeError(value)
