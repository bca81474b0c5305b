"""Embeddings in files, as `simcse_jax.encode` writes them, read a few thousand rows at a time.

A .parquet has columns `embedding`, and perhaps `row` and `sentence`; a .npy has embeddings alone. Several files are
parts of one input, in the order of their names. All are looked at before the first row is used.
"""

import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from simcse_jax.encoding.files import MAKER
from simcse_jax.errors import UserError, reason, why
from simcse_jax.index.files import ModelIdentity, is_identity
from simcse_jax.storage import Folder, as_path

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

KINDS = (".parquet", ".npy")
AT_ONCE = 8192  # rows
DTYPES = ("float32", "float16")


class Part(NamedTuple):
    """A file."""

    path: Folder
    rows: int
    dimension: int
    numbered: bool  # whether it has rows' numbers
    sentences: bool  # whether it has sentences
    maker: str | None  # the model that made it, in JSON


class Batch(NamedTuple):
    """Some rows of a file."""

    rows: Int64[np.ndarray, " n"]
    sentences: "pyarrow.Array"  # None where a file has none
    embeddings: Float[np.ndarray, "n D"]


class EmbeddingFiles:
    """The files of a folder, or a single one; N rows of `dimension` elements."""

    def __init__(self, name: str):
        """Looks at all files.

        Raises:
          UserError: when there are none, one cannot be read, or they do not belong together.
        """
        self.name, path = name, as_path(name)
        self.parts = [_look(file) for file in _files(path)]
        first = self.parts[0]
        for part in self.parts[1:]:
            for what, mine, others in (
                ("embeddings of {} elements", part.dimension, first.dimension),
                ("rows that are {}", _numbered(part), _numbered(first)),
                ("embeddings of the model {}", _short(part.maker), _short(first.maker)),
            ):
                if mine != others:
                    raise UserError(
                        f"{part.path}: has {what.format(mine)}, {first.path.name} {what.format(others)}; "
                        f"an index needs embeddings of one kind"
                    )
        self.dimension = first.dimension
        self.count = sum(part.rows for part in self.parts)
        if not self.count:
            raise UserError(f"{name}: has no embeddings")
        self.first, self.last = self._ends()

    @property
    def maker(self) -> ModelIdentity | None:
        """The model that made the embeddings, if the files say so.

        Raises:
          UserError: when what they say is damaged.
        """
        part = self.parts[0]
        if part.maker is None:
            return None
        try:
            maker = ModelIdentity(**json.loads(part.maker))
        except (ValueError, TypeError):
            maker = None
        if maker is None or not is_identity(maker):
            raise UserError(f"{part.path}: what it says about its model is damaged; encode it again")
        return maker

    def batches(self) -> Iterator[Batch]:
        """All rows, file by file.

        Raises:
          UserError: naming the file and the row of an embedding that is missing or not finite.
        """
        done = 0
        for part in self.parts:
            place = 0
            for batch in _npy(part, done) if part.path.suffix == ".npy" else _parquet(part):
                wrong = ~np.isfinite(batch.embeddings).all(axis=1)
                if wrong.any():
                    row = place + int(np.flatnonzero(wrong)[0])
                    raise UserError(f"{part.path}: row {row} of the file has an embedding that is not finite")
                place += len(batch.rows)
                yield batch
            if place != part.rows:
                raise UserError(f"{part.path}: changed while it was read; start again")
            done += part.rows

    def _ends(self) -> tuple[int, int]:
        """The smallest and the largest row. That each between them is there once is seen from their sums."""
        if not self.parts[0].numbered:
            return 0, self.count - 1
        least, most, total, squares = [], [], 0, 0
        for part in self.parts:
            for batch in _columns(part, ["row"]):
                rows = batch.column("row").to_numpy(zero_copy_only=False)
                if len(rows):
                    least.append(int(rows.min()))
                    most.append(int(rows.max()))
                    total += int(rows.sum(dtype=np.uint64))
                    squares += int((rows.astype(np.uint64) ** 2).sum())
        first, last = min(least), max(most)
        if first < 0:
            raise UserError(f"{self.name}: has row {first}; rows are counted from 0")
        expected = (first + last) * self.count // 2, _squares(last) - _squares(first - 1)
        if last - first + 1 != self.count or any(
            (a - b) % 2**64 for a, b in zip(expected, (total, squares), strict=True)
        ):
            raise UserError(
                f"{self.name}: has {self.count:,} rows with numbers from {first:,} to {last:,}, not each of them "
                f"once; a file is missing, or there twice"
            )
        return first, last


def _squares(last: int) -> int:
    return last * (last + 1) * (2 * last + 1) // 6


def _numbered(part: Part) -> str:
    return "numbered" if part.numbered else "not numbered"


def _short(maker: str | None) -> str:
    return "that is not named" if maker is None else " ".join(str(value) for value in json.loads(maker).values())[:120]


def _files(path: Folder) -> list[Folder]:
    try:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        if not path.is_dir():
            if path.suffix not in KINDS:
                raise UserError(f"{path}: must be a folder, a .parquet or a .npy")
            return [path]
        names = sorted(path.iterdir(), key=lambda file: file.name)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
    left = [file for file in names if file.name.endswith(".partial")]
    if left:
        raise UserError(f"{left[0]}: is not complete; give the command that began it again")
    found = [file for file in names if file.suffix in KINDS and not file.name.startswith((".", "_"))]
    if not found:
        raise UserError(f"{path}: has no .parquet and no .npy")
    if len({file.suffix for file in found}) > 1:
        raise UserError(f"{path}: has both .parquet and .npy; their order is open, so give one kind")
    return found


def _look(path: Folder) -> Part:
    try:
        with path.open("rb") as file:
            return _look_npy(path, file) if path.suffix == ".npy" else _look_parquet(path, file)
    except UserError:
        raise
    except Exception as error:  # of a disk, a store's client, pyarrow or NumPy
        raise UserError(f"{path}: cannot be read as embeddings: {why(error)}") from None


def _look_npy(path: Folder, file: IO[bytes]) -> Part:
    shape, _ = _npy_header(path, file)
    return Part(path, shape[0], shape[1], numbered=False, sentences=False, maker=None)


def _npy_header(path: Folder, file: IO[bytes]) -> tuple[tuple[int, int], str]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if len(shape) != 2 or fortran or dtype.name not in DTYPES or not shape[1]:
        raise UserError(f"{path}: {dtype} {shape}; embeddings are (rows, elements), of {' or '.join(DTYPES)}")
    return shape, dtype.name


def _look_parquet(path: Folder, file: IO[bytes]) -> Part:
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
    maker = (schema.metadata or {}).get(MAKER)
    text = None if maker is None else maker.decode(errors="replace")
    return Part(path, opened.metadata.num_rows, kind.list_size, numbered, texts, text)


def _columns(part: Part, names: list[str]) -> "Iterator[pyarrow.RecordBatch]":
    """Columns of a .parquet, which may not have missing values."""
    import pyarrow.parquet

    try:
        with part.path.open("rb") as file:
            for batch in pyarrow.parquet.ParquetFile(file).iter_batches(AT_ONCE, columns=names):
                for name in names:
                    if batch.column(name).null_count and name != "sentence":
                        raise UserError(f"{part.path}: has a row without {name}")
                yield batch
    except UserError:
        raise
    except Exception as error:  # of a disk, a store's client or pyarrow
        raise UserError(f"{part.path}: truncated or damaged ({reason(error)})") from None


def _parquet(part: Part) -> Iterator[Batch]:
    names = ["embedding", *["row"] * part.numbered, *["sentence"] * part.sentences]
    for batch in _columns(part, names):
        column: Any = batch.column("embedding")
        vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, part.dimension)
        texts = batch.column("sentence") if part.sentences else _no_sentences(len(batch))
        yield Batch(batch.column("row").to_numpy(), texts, vectors)


def _npy(part: Part, first: int) -> Iterator[Batch]:
    try:
        with part.path.open("rb") as file:
            (rows, dimension), dtype = _npy_header(part.path, file)
            for start in range(0, rows, AT_ONCE):
                count = min(AT_ONCE, rows - start)
                data = file.read(count * dimension * np.dtype(dtype).itemsize)
                vectors = np.frombuffer(data, dtype).reshape(count, dimension)
                yield Batch(np.arange(first + start, first + start + count), _no_sentences(count), vectors)
    except (OSError, ValueError) as error:
        raise UserError(f"{part.path}: truncated or damaged ({reason(error)})") from None


def _no_sentences(count: int) -> "pyarrow.Array":
    import pyarrow

    return pyarrow.nulls(count, pyarrow.string())
