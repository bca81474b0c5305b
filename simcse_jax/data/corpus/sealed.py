"""JSON files with their own hash, so that a damaged one is found before anything is concluded from it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from simcse_jax.errors import UserError, why
from simcse_jax.host.storage import Folder, parse_json, write_atomically

SEAL = "seal"


def write_sealed(path: Folder, content: Mapping[str, Any]) -> None:
    """Writes an object and its hash."""
    write_atomically(path, json.dumps({**content, SEAL: _hash(content)}) + "\n")


def read_sealed(path: Folder) -> dict[str, Any] | None:
    """Reads an object back; None if there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except Exception as error:  # an OSError, bad UTF-8, or an error of a store's client
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
    content = parse_json(text, str(path))
    if content.pop(SEAL, None) != _hash(content):
        raise UserError(f"{path}: was changed since it was written; remove it, and give the command again")
    return content


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode(errors="surrogatepass")).hexdigest()
