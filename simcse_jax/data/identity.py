"""The identity of files: stamps of sources, hashes, and JSON files with their own hash, in which damage is found."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.data.examples import PREFIXED, prefix_of
from simcse_jax.data.rows import reported, size_and_time
from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder, as_path, is_remote, parse_json, write_atomically

SEAL = "seal"


def write_sealed(path: Folder, content: Mapping[str, Any]) -> None:
    """Writes a JSON object with its hash."""
    write_atomically(path, sealed(content))


def sealed(content: Mapping[str, Any]) -> str:
    """The text of a JSON object with its hash."""
    return json.dumps({**content, SEAL: json_hash(content)}) + "\n"


def read_sealed(path: Folder) -> dict[str, Any] | None:
    """Reads the object, checking its hash; None if the file does not exist."""
    with reported(path):
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
    content = parse_json(text, str(path))
    if content.pop(SEAL, None) != json_hash(content):
        raise UserError(f"{path}: was changed since it was written; remove it, and run the command again")
    return content


def json_hash(content: Any) -> str:
    """SHA-256 of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Stamp(NamedTuple):
    """Identity of a source that has not been read."""

    bytes: int  # 0 if not a file
    written: str  # modification time of a file; version of a dataset


def stamp_of(source: str) -> Stamp:
    """The stamp of a source."""
    if prefix := prefix_of(source):
        return Stamp(0, PREFIXED[prefix].version(source.removeprefix(prefix)))
    size, written = size_and_time(as_path(source))
    return Stamp(size, str(written))


def size_of(path: Folder) -> int | None:
    """The size in bytes of a file or an object in a bucket; None if it does not exist."""
    with reported(path):
        try:
            status: Any = path.stat()
        except FileNotFoundError:
            return None
    return int(status.length if is_remote(path) else status.st_size)


def hash_file(path: Path) -> str:
    """SHA-256 of a file."""
    with reported(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def names_in(folder: Folder) -> set[str]:
    """The names of all files in a folder."""
    with reported(folder):
        return {path.name for path in folder.iterdir()}
