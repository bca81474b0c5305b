"""Saves and loads an index as a folder.

index.json               the model (`ModelIdentity`), versions, names of files
embeddings-ID.npy        (N, D) float32, of unit length for cosines; memory-mapped when loaded; or (N, D) int8, with the
                         ranges in index.json, or (N, ⌈D / 8⌉) uint8 of bits
sentences-ID.parquet     N sentences in the same order

`index.json` names the files of a saved index. It is replaced last and atomically: if saving stops before that, the
folder still holds the old index.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Shaped

from simcse_jax.errors import UserError, reason, system_message
from simcse_jax.host.locks import LOCK, held
from simcse_jax.host.storage import is_of_macos, is_remote, local_path, read_json, write_atomically
from simcse_jax.host.version import __version__
from simcse_jax.index import identity
from simcse_jax.index.identity import ModelIdentity
from simcse_jax.index.index import Index

ABOUT = "index.json"
UNFINISHED = f".{ABOUT}.tmp"  # left by a kill
SENTENCES_AT_ONCE = 1 << 18
ID = "[0-9a-f]" * 8  # a glob
PATTERNS = (f"embeddings-{ID}.npy", f"sentences-{ID}.parquet")


def save(index: Index, folder: str | Path, model: ModelIdentity) -> None:
    """Writes the index, whole or not at all, replacing an earlier one."""
    folder = local_folder(folder)
    if not is_writable_index(folder):
        raise UserError(f"{folder}: exists and is not an index; choose another folder")
    identifier = uuid.uuid4().hex[:8]
    embeddings, sentences = (folder / pattern.replace(ID, identifier) for pattern in PATTERNS)
    about = {
        "rows": len(index),
        "model": model._asdict(),
        "embeddings": embeddings.name,
        "sentences": sentences.name,
        "versions": {"simcse_jax": __version__, "numpy": np.__version__},
        **identity.precision_content(index.precision, index.ranges),
        "ranged": index.ranged,
    }
    with held(folder):  # two jobs would remove each other's files
        try:
            with _written(embeddings) as file:
                _write_embeddings(index, file)
            with _written(sentences) as file:
                _write_sentences(index.sentences, file)
            write_atomically(folder / ABOUT, json.dumps(about, indent=2) + "\n")
        except Exception as error:
            for path in (embeddings, sentences):
                path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise UserError(f"{folder}: cannot be written: {system_message(error)}") from None
            raise
        for path in (path for pattern in PATTERNS for path in folder.glob(pattern)):
            if path not in (embeddings, sentences):  # the earlier index's, or left by a kill
                path.unlink(missing_ok=True)


def load(folder: str | Path, model: ModelIdentity) -> Index:
    """Reads an index, memory-mapping its embeddings."""
    folder = local_folder(folder)
    if not is_index(folder):
        raise UserError(f"{folder}: no index there ({ABOUT} is missing)")
    while True:
        about = read_json(folder / ABOUT)
        try:
            return _load(folder, about, model)
        except UserError:
            if read_json(folder / ABOUT) == about:  # else it was replaced meanwhile, and its files removed
                raise


def _load(folder: Path, about: dict[str, Any], model: ModelIdentity) -> Index:
    damaged = identity.DAMAGED.format(folder / ABOUT)
    if about.get("backend") is not None:
        raise UserError(
            f"{folder}: an index of {about['backend']!s:.40}; open_index opens it, --index of the commands too"
        )
    precision, ranges = identity.read_precision(about, model.dimension, folder / ABOUT)
    maker = identity.read_identity(about.get("model"), damaged)
    rows, *names = (about.get(name) for name in ("rows", "embeddings", "sentences"))
    matches = [fnmatch(str(name), pattern) for name, pattern in zip(names, PATTERNS, strict=True)]  # so not elsewhere
    if type(rows) is not int or not all(matches):
        raise UserError(damaged)
    embeddings, sentences = (folder / str(name) for name in names)
    identity.check_maker(folder, maker, model)
    index = Index(model.dimension, model.similarity, precision)
    index.maker, index.ranges, index.ranged = model, ranges, about.get("ranged", 0)
    texts = _read_sentences(sentences, rows)
    small = index.quantization
    width, dtype = (model.dimension, np.dtype(np.float32)) if small is None else (small.width, small.dtype)
    return index.keep(texts, _map_embeddings(embeddings, (rows, width), dtype))


def local_folder(folder: str | Path) -> Path:
    """The folder of that name, which must be on a disk and not a file."""
    if is_remote(folder):
        raise UserError(f"{folder}: an index is memory-mapped, so it must be a folder on a disk")
    path = local_path(folder)
    if path.is_file():
        raise UserError(f"{folder}: a file; an index is a folder")
    return path


def is_index(folder: Path) -> bool:
    """Whether the folder has a saved index."""
    return (folder / ABOUT).is_file()


def is_writable_index(folder: Path) -> bool:
    """Whether the folder has nothing but an index."""
    if not folder.is_dir():
        return True
    named = {path for pattern in PATTERNS for path in folder.glob(pattern)}
    if is_index(folder):  # or another program's file of this name
        return bool(named)
    return (named | {folder / name for name in (LOCK, UNFINISHED)}).issuperset(
        path for path in folder.iterdir() if not is_of_macos(path.name)
    )


@contextlib.contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write_embeddings(index: Index, file: IO[bytes]) -> None:
    # Not with open_memmap: a full disk would be a bus error instead of an exception.
    small = index.quantization
    width, dtype = (index.dimension, np.dtype("<f4")) if small is None else (small.width, small.dtype)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (len(index), width)}
    np.lib.format.write_array_header_1_0(file, header)
    for rows in index.stored():
        file.write(np.ascontiguousarray(rows, dtype).data)


def _write_sentences(sentences: list[str], file: IO[bytes]) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([("sentence", pyarrow.string())])
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for start in range(0, len(sentences), SENTENCES_AT_ONCE):
            writer.write_table(pyarrow.table([sentences[start : start + SENTENCES_AT_ONCE]], schema))


@contextlib.contextmanager
def _read(path: Path) -> Iterator[None]:
    try:
        if path.exists() and not path.is_file():
            raise OSError("not a file")  # reading a pipe would wait forever
        yield
    except Exception as error:  # NumPy's, pyarrow's or the disk's
        raise UserError(f"{path}: missing, truncated or damaged ({reason(error)}); build the index again") from None


def _map_embeddings(path: Path, shape: tuple[int, int], dtype: np.dtype) -> Shaped[np.ndarray, "N C"]:
    if not shape[0]:  # nothing to map
        return np.zeros(shape, dtype)
    with _read(path):
        embeddings = np.load(path, mmap_mode="r", allow_pickle=False)
    if embeddings.shape != shape or embeddings.dtype != dtype:
        raise UserError(
            f"{path}: {embeddings.dtype} {embeddings.shape}, but the index has {dtype} {shape}; build it again"
        )
    return embeddings


def _read_sentences(path: Path, rows: int) -> list[str]:
    import pyarrow.parquet

    with _read(path):
        sentences = pyarrow.parquet.read_table(path, columns=["sentence"])["sentence"].to_pylist()
    if len(sentences) != rows:
        raise UserError(f"{path}: {len(sentences)} sentences, but the index has {rows}; build it again")
    return sentences
