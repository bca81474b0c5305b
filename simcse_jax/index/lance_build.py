"""Builds an index of LanceDB from embeddings, or adds to one.

index.json is written last and names the table's version. If a build stops before that, an earlier index is unchanged,
and the next build first restores the table to that version.
"""

import datetime
import hashlib
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from simcse_jax.errors import UserError, require
from simcse_jax.host.locks import LOCK, held
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import Folder, as_path, is_of_macos, is_remote, sha256, write_atomically
from simcse_jax.host.version import __version__
from simcse_jax.index import lance
from simcse_jax.index.embedding_files import EmbeddingFiles, FileRows
from simcse_jax.index.folder import ABOUT, UNFINISHED
from simcse_jax.index.identity import ModelIdentity, check_maker
from simcse_jax.index.lance import RowFormat
from simcse_jax.vectors.quantization import Clipped

if TYPE_CHECKING:
    import lancedb
    import pyarrow

LEAST = 10_000  # rows for cells and codes; with fewer, all rows are compared
ROWS_A_CELL = 4096
MOST_CELLS = 1 << 16  # every search holds their centres in memory; beyond 268 million rows, cells are larger
SAMPLE = 1 << 21  # maximum number of vectors in memory to find cells, 32 per cell or more
SAMPLE_OF_A_CELL = 256
ITERATIONS = 20  # to find cells and codes; more take longer and find no better ones
GROWN = 2  # cells are found again with this many times as many rows


def check_folder(name: str, embeddings: str) -> Folder:
    """The folder to build in, new or with an index of LanceDB, on a disk or in a bucket."""
    require(lance.BACKEND, "lancedb")
    folder = as_path(name)
    if str(folder) == str(as_path(embeddings)):
        raise UserError(f"{name}: is the folder of the embeddings; choose another")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{name}: a file; an index is a folder")
    if (folder / ABOUT).exists():
        lance.read_about(folder)
    elif folder.is_dir():
        other = sorted(
            {path.name for path in folder.iterdir() if not is_of_macos(path.name)} - {lance.FOLDER, LOCK, UNFINISHED}
        )
        if other:
            raise UserError(f"{name}: holds {other[0]} and is not an index; choose another folder")
    return folder


def build(
    folder: Folder, files: EmbeddingFiles, model: ModelIdentity, wanted: lance.Wanted = lance.DEFAULTS
) -> tuple[lance.About, bool]:
    """Builds an index, or adds the embeddings to an existing one; returns it, and whether they were added.

    An index that already has the embeddings is unchanged, so a command can be repeated. Numbered rows keep their
    numbers if all come after those of the index; otherwise numbering continues.
    """
    if files.dimension != model.dimension:
        raise UserError(
            f"{files.name}: has embeddings of {files.dimension} elements, those of {model.name} have {model.dimension}"
        )
    if model.similarity not in lance.DISTANCES:
        raise UserError(f"{model.name}: compares by {model.similarity}, which LanceDB cannot; build an index in memory")
    _open_existing(folder, model, wanted)  # a mistake is reported before there is a folder
    with held(folder):
        _remove_leftovers(folder)
        before = _open_existing(folder, model, wanted)
        if before is not None and _has_rows(before, files):
            return before, False
        contents = _RowDigest(files)
        embeddings = (batch.embeddings for batch in files.batches())
        kept = lance.format_for(wanted, embeddings, files.dimension) if before is None else before.kept
        shift = 0 if before is None or files.first > before.last else before.last + 1 - files.first
        with lance.errors_of(folder):
            table = _add_rows(folder, files, shift, before, kept, contents)
            found_in = _find_cells(table, before, files.dimension, model.similarity, kept)
            rows, version = table.count_rows(), table.version
        added = (*(before.added if before else ()), contents.fingerprint)
        about = lance.About(rows, files.last + shift, version, found_in, files.dimension, model, kept, added)
        _write(folder, about)
    return about, True


def _remove_leftovers(folder: Folder) -> None:
    """Removes the files that LanceDB had not finished when a build was killed; in a store it leaves none."""
    if not is_remote(folder):
        for path in folder.glob(f"{lance.FOLDER}/**/.tmp*"):
            path.unlink(missing_ok=True)


class _RowDigest:
    """A fingerprint of rows (numbers, embeddings, sentences) that does not depend on how many are read at once."""

    def __init__(self, files: EmbeddingFiles):
        self._about, self._first = f"{files.count} {files.first}", ""
        self._hashes = [hashlib.sha256() for _ in range(3)]

    def read(self, batch: FileRows) -> None:
        """Adds the next rows."""
        embeddings = np.ascontiguousarray(batch.embeddings, np.float32)
        if not self._first and len(embeddings):
            self._first = sha256(embeddings[0])
        sentences = "".join(f"{json.dumps(sentence)}\n" for sentence in batch.sentences.to_pylist())
        parts = np.asarray(batch.rows, np.int64).tobytes(), embeddings.tobytes(), sentences.encode()
        for digest, part in zip(self._hashes, parts, strict=True):
            digest.update(part)

    @property
    def start(self) -> str:
        """The part known after the first row: the number of rows, the first row number and embedding."""
        return f"{self._about} {self._first}"

    @property
    def fingerprint(self) -> str:
        """A fingerprint of all rows."""
        return " ".join([self.start, *(digest.hexdigest() for digest in self._hashes)])


def _has_rows(before: lance.About, files: EmbeddingFiles) -> bool:
    """Whether the index has these rows; reads all of them only if their beginning matches."""
    contents = _RowDigest(files)
    for batch in files.batches():
        contents.read(batch)
        if not any(fingerprint.startswith(contents.start) for fingerprint in before.added):
            return False
    return contents.fingerprint in before.added


def _open_existing(folder: Folder, model: ModelIdentity, wanted: lance.Wanted) -> lance.About | None:
    """The existing index, which must be the model's and keep what is wanted."""
    before = lance.read_about(folder) if (folder / ABOUT).exists() else None
    if before is not None:
        check_maker(folder, before.model, model)
    lance.check_wanted(wanted, model.similarity, None if before is None else before.kept, folder)
    return before


def _write(folder: Folder, about: lance.About) -> None:
    content = {
        "backend": lance.BACKEND,
        "rows": about.rows,
        "last": about.last,
        "version": about.version,
        "found_in": about.found_in,
        "model": about.model._asdict(),
        "added": about.added,
        "versions": {"simcse_jax": __version__},
    } | about.kept.content()
    write_atomically(folder / ABOUT, json.dumps(content, indent=2) + "\n")


def _add_rows(
    folder: Folder, files: EmbeddingFiles, shift: int, before: lance.About | None, kept: RowFormat, contents: _RowDigest
) -> "lancedb.table.Table":
    """The table with the embeddings added, all or none."""
    import pyarrow

    database = lance.connect(folder)
    schema = pyarrow.schema([("row", pyarrow.int64()), ("sentence", pyarrow.string()), *kept.fields(files.dimension)])
    table = None
    if before is not None:
        table = database.open_table(lance.TABLE)
        if table.version != before.version:
            table.checkout(before.version)
            table.restore()  # without the leftovers of an interrupted build
    wrong: list[UserError] = []
    with Progress(files.count, "rows") as bar:
        batches = _batches(files, schema, shift, bar, wrong, kept, contents)
        reader = pyarrow.RecordBatchReader.from_batches(schema, batches)
        try:
            if table is None:
                return database.create_table(lance.TABLE, reader, schema=schema, mode="overwrite")
            table.add(reader)
        except Exception:
            if wrong:  # LanceDB wraps it in an error of its own
                raise wrong[0] from None
            raise
    return table


def _batches(
    files: EmbeddingFiles,
    schema: "pyarrow.Schema",
    shift: int,
    bar: Progress,
    wrong: list[UserError],
    kept: RowFormat,
    contents: _RowDigest,
) -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow

    kinds, clipped = [kind for _, kind in kept.fields(files.dimension)], Clipped()
    try:
        for batch in files.batches():
            contents.read(batch)
            columns = [
                pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.ravel()), type=kind)
                for values, kind in zip(kept.values(batch.embeddings, clipped), kinds, strict=True)
            ]
            yield pyarrow.record_batch([pyarrow.array(batch.rows + shift), batch.sentences, *columns], schema=schema)
            bar.advance(len(batch.rows))
        clipped.warn(stacklevel=2)
    except UserError as error:
        wrong.append(error)
        raise


def _find_cells(
    table: "lancedb.table.Table", before: lance.About | None, dimension: int, similarity: str, kept: RowFormat
) -> int:
    """Makes cells and codes, or adds new rows to existing cells; returns the number of rows that gave the cells."""
    rows = table.count_rows()
    if rows < LEAST:
        return 0
    found_in = 0 if before is None else before.found_in
    if before is not None and found_in:
        # Removes versions replaced more than a week ago, but not the one that index.json names until this build ends.
        made = next(version["timestamp"] for version in table.list_versions() if version["version"] == before.version)
        age = max(datetime.timedelta(days=7), datetime.datetime.now() - made + datetime.timedelta(days=1))
        table.optimize(cleanup_older_than=age)
        if rows < GROWN * found_in:
            return found_in
    cells = min(math.ceil(rows / ROWS_A_CELL), MOST_CELLS)
    shared: dict[str, Any] = {"distance_type": lance.DISTANCES[similarity], "num_partitions": cells}
    shared |= {"max_iterations": ITERATIONS, "sample_rate": min(SAMPLE_OF_A_CELL, SAMPLE // cells)}
    column = "vector" if kept.quantization is None else "bits"
    table.create_index(column, config=kept.cells(dimension, shared), name=lance.CELLS, replace=True)
    return rows
