"""Embeddings in files as written by `encode`, read a few thousand rows at a time.

A .parquet has columns `embedding`, and perhaps `row` and `sentence`; a .npy has only embeddings. Several files are
parts of one input, ordered by name. All are examined before the first row is used.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from simcse_jax.errors import UserError, reason
from simcse_jax.host.hidden import DOT, MANIFEST, PLAN, is_hidden
from simcse_jax.host.storage import Folder, as_path, read_json
from simcse_jax.index.identity import ModelIdentity, read_identity
from simcse_jax.vectors.parquet import MAKER

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

KINDS = (".parquet", ".npy")
AT_ONCE = 8192  # rows
DTYPES = ("float32", "float16")


class EmbeddingFile(NamedTuple):
    """A file."""

    path: Folder
    rows: int
    dimension: int
    numbered: bool  # whether it has row numbers
    sentences: bool  # whether it has sentences
    maker: ModelIdentity | None  # the model that made it

    @property
    def kind(self) -> tuple[str, ...]:
        """The properties that all files of an index share, for messages."""
        return (
            f"embeddings of {self.dimension} elements",
            f"rows that are {'' if self.numbered else 'not '}numbered",
            f"rows {'with' if self.sentences else 'without'} their sentences",
            f"embeddings of the model {'that is not named' if self.maker is None else ' '.join(map(str, self.maker))}",
        )


class FileRows(NamedTuple):
    """Some rows of a file."""

    rows: Int64[np.ndarray, " n"]
    sentences: "pyarrow.Array"  # null if the file has none
    embeddings: Float[np.ndarray, "n D"]


class EmbeddingFiles:
    """The files of a folder, or a single one; N rows of `dimension` elements."""

    def __init__(self, name: str):
        """Examines all files."""
        self.name, path = name, as_path(name)
        self.parts = [_look(file) for file in _files(path)]
        first = self.parts[0]
        for part in self.parts[1:]:
            for kind, other in zip(part.kind, first.kind, strict=True):
                if kind != other:
                    raise UserError(
                        f"{part.path}: has {kind}, {first.path.name} {other}; an index needs embeddings of one kind"
                    )
        self.dimension, self.maker = first.dimension, first.maker
        self.count = sum(part.rows for part in self.parts)
        if not self.count:
            raise UserError(f"{name}: has no embeddings")
        self.first, self.last = self._ends()

    def batches(self) -> Iterator[FileRows]:
        """All rows, file by file."""
        done = 0
        for part in self.parts:
            place = 0
            for batch in (_npy if part.path.suffix == ".npy" else _parquet)(part, done):
                with np.errstate(over="ignore"):  # a row whose length exceeds float32 has no cosine
                    wrong = ~np.isfinite(np.linalg.norm(batch.embeddings.astype(np.float32), axis=1))
                if wrong.any():
                    row = place + int(np.flatnonzero(wrong)[0])
                    raise UserError(f"{part.path}: row {row} of the file has an embedding whose length is not finite")
                place += len(batch.rows)
                yield batch
            done += part.rows

    def _ends(self) -> tuple[int, int]:
        """The smallest and the largest row number; each in between must occur once."""
        if not self.parts[0].numbered:
            return 0, self.count - 1
        ends = [(int(rows.min()), int(rows.max())) for rows in self._numbers()]
        first, last = min(least for least, _ in ends), max(most for _, most in ends)
        seen = np.zeros(self.count, bool)
        for rows in self._numbers() if last - first + 1 == self.count else ():
            seen[rows - first] = True
        if not seen.all():
            raise UserError(
                f"{self.name}: has {self.count:,} rows with numbers from {first:,} to {last:,}, but not each exactly "
                f"once; a file is missing or duplicated"
            )
        return first, last

    def _numbers(self) -> Iterator[Int64[np.ndarray, " n"]]:
        """The row numbers of numbered files."""
        batches = (batch.column("row").to_numpy() for part in self.parts for batch in _columns(part, ["row"]))
        return (rows for rows in batches if len(rows))


def _files(path: Folder) -> list[Folder]:
    with _damage(path):
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        if not path.is_dir():
            if path.suffix not in KINDS:
                raise UserError(f"{path}: must be a folder, a .parquet or a .npy")
            return [path]
        names = sorted(path.iterdir(), key=lambda file: file.name)
    files = [file for file in names if file.suffix in KINDS and not is_hidden(file.name)]
    listed = {file.name for file in names}
    unfinished = [file for file in names if file.name.endswith(".partial")]
    plan, manifest = (path / f"{DOT}{name}" for name in (PLAN, MANIFEST))
    if files and plan.name in listed and manifest.name not in listed:  # `encode` is still filling the folder
        unfinished.append(manifest)
    if unfinished:
        raise UserError(f"{unfinished[0]}: is not complete; run the command that began it again")
    if not files:
        raise UserError(f"{path}: has no .parquet and no .npy")
    if len({file.suffix for file in files}) > 1:
        raise UserError(f"{path}: has both .parquet and .npy, in no common order; give one kind")
    present = {file.name for file in files}
    if manifest.name in listed:
        _check_listed(manifest, present)
    for name in sorted(present):
        part = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})(\.npy|\.parquet)", name)  # a missing last part would go unnoticed
        if part is None:
            continue
        for number in range(int(part[2])):
            if (other := f"{part[1]}-{number:05}-of-{part[2]}{part[3]}") not in present:
                raise UserError(f"{path / other}: missing; {name} is there, and rows are counted through all parts")
    return files


def _check_listed(manifest: Folder, names: set[str]) -> None:
    """Refuses a folder that lacks a listed file; without the list, a missing last file would go unnoticed."""
    try:
        missing = [name for name, _ in read_json(manifest)["files"] if name not in names]
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{manifest}: damaged; run the command that made the folder again") from None
    if missing:
        path = manifest.parent / missing[0]
        raise UserError(f"{path}: missing, but {manifest.name} lists it; copy it, or encode the folder again")


def _look(path: Folder) -> EmbeddingFile:
    with _damage(path), path.open("rb") as file:
        if path.suffix == ".parquet":
            return _look_parquet(path, file)
        (rows, dimension), _ = _npy_header(path, file)
        return EmbeddingFile(path, rows, dimension, numbered=False, sentences=False, maker=None)


@contextlib.contextmanager
def _damage(path: Folder) -> Iterator[None]:
    """Reports what a disk, a store's client, pyarrow or NumPy cannot read."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}: missing, truncated or damaged ({reason(error)})") from None


def _npy_header(path: Folder, file: Any) -> tuple[tuple[int, int], str]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if len(shape) != 2 or fortran or dtype.name not in DTYPES or not dtype.isnative or not shape[1]:
        raise UserError(f"{path}: {dtype} {shape}; embeddings are (rows, elements), of {' or '.join(DTYPES)}")
    return shape, dtype.name


def _look_parquet(path: Folder, file: Any) -> EmbeddingFile:
    import pyarrow
    import pyarrow.parquet

    opened = pyarrow.parquet.ParquetFile(file)
    schema = opened.schema_arrow
    if "embedding" not in schema.names:
        raise UserError(f"{path}: has no column embedding, but {', '.join(schema.names)[:200]}")
    kind = schema.field("embedding").type
    if not pyarrow.types.is_fixed_size_list(kind) or kind.value_type not in (pyarrow.float32(), pyarrow.float16()):
        raise UserError(f"{path}: embedding is {kind}; it must be a fixed_size_list of {' or '.join(DTYPES)}")
    numbered, texts = "row" in schema.names, "sentence" in schema.names
    for name, wanted in (("row", pyarrow.int64()), ("sentence", pyarrow.string())):
        if name in schema.names and schema.field(name).type != wanted:
            raise UserError(f"{path}: {name} is {schema.field(name).type}; it must be {wanted}")
    content = (schema.metadata or {}).get(MAKER)
    damaged = f"{path}: what it says about its model is damaged; encode it again"
    maker = None if content is None else read_identity(json.loads(content), damaged)
    return EmbeddingFile(path, opened.metadata.num_rows, kind.list_size, numbered, texts, maker)


def _columns(part: EmbeddingFile, names: list[str]) -> "Iterator[pyarrow.RecordBatch]":
    """Columns of a .parquet, without missing values except for sentences."""
    import pyarrow.parquet

    with _damage(part.path), part.path.open("rb") as file:
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(AT_ONCE, columns=names):
            for name in names:
                if batch.column(name).null_count and name != "sentence":
                    raise UserError(f"{part.path}: has a row without {name}")
            yield batch


def _parquet(part: EmbeddingFile, first: int) -> Iterator[FileRows]:
    names = ["embedding", *["row"] * part.numbered, *["sentence"] * part.sentences]
    for batch in _columns(part, names):
        column: Any = batch.column("embedding")
        vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, part.dimension)
        texts = batch.column("sentence") if part.sentences else _no_sentences(len(batch))
        rows = batch.column("row").to_numpy() if part.numbered else np.arange(first, first + len(batch))
        first += len(batch)
        yield FileRows(rows, texts, vectors)


def _npy(part: EmbeddingFile, first: int) -> Iterator[FileRows]:
    with _damage(part.path), part.path.open("rb") as file:
        (rows, dimension), dtype = _npy_header(part.path, file)
        for start in range(0, rows, AT_ONCE):
            count = min(AT_ONCE, rows - start)
            data = file.read(count * dimension * np.dtype(dtype).itemsize)
            vectors = np.frombuffer(data, dtype).reshape(count, dimension)
            yield FileRows(np.arange(first + start, first + start + count), _no_sentences(count), vectors)


def _no_sentences(count: int) -> "pyarrow.Array":
    import pyarrow

    return pyarrow.nulls(count, pyarrow.string())
