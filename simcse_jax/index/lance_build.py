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
from simcse_jax.host.storage import Folder, as_path, is_of_macos, write_atomically
from simcse_jax.host.version import __version__
from simcse_jax.index import lance
from simcse_jax.index.candidates import quantization_for
from simcse_jax.index.embedding_files import EmbeddingFiles, FileRows
from simcse_jax.index.folder import ABOUT, UNFINISHED
from simcse_jax.index.identity import ModelIdentity, check_maker
from simcse_jax.index.lance import RowFormat, Wanted
from simcse_jax.index.options import check_precision
from simcse_jax.vectors.quantization import (
    Ranges,
    check_calibration,
    merge_ranges,
    ranges_of,
    warn_of_few,
)
from simcse_jax.vectors.similarity import prepared

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
CALIBRATION = 1 << 17  # rows from which ranges are found
NEVER = datetime.timedelta(days=36500)


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
    folder: Folder, files: EmbeddingFiles, model: ModelIdentity, wanted: Wanted = lance.DEFAULTS
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
        before = _open_existing(folder, model, wanted)
        if before is not None and _has_rows(before, files):
            return before, False
        kept = _new_format(wanted, files) if before is None else before.kept
        shift = 0 if before is None or files.first > before.last else before.last + 1 - files.first
        with lance.errors_of(folder):
            table, added = _add_rows(folder, files, shift, before, kept)
            found_in = _find_cells(table, before, files.dimension, model.similarity, kept)
            everything = [*(before.added if before else ()), added]
            rows = (before.rows if before else 0) + files.count
            if table.count_rows() != rows:  # in a bucket, where the earlier job writes until it looks
                raise UserError(f"{folder}: another job wrote into the table meanwhile; run the command again")
            about = lance.About(rows, files.last + shift, table.version, found_in, everything, model, kept)
            _write(folder, about)
            if before is not None:
                table.optimize()  # removes versions that were replaced more than a week ago
    return about, True


def _open_existing(folder: Folder, model: ModelIdentity, wanted: Wanted) -> lance.About | None:
    """The existing index, which must be the model's and keep what is wanted; checks what a new one is to keep."""
    if not (folder / ABOUT).exists():
        precision = wanted.precision or "float32"
        check_precision(precision, model.similarity, wanted.ranges is not None)
        if precision != "float32" and model.similarity != "cosine":
            raise UserError(f"precision {precision}: on a disk, rows are found by their bits, so by cosine alone")
        if precision != "float32" and wanted.codes is not None:
            raise UserError(f"codes {wanted.codes}: are of float32; leave them out for precision {precision}")
        return None
    before = lance.read_about(folder)
    check_maker(folder, before.model, model)
    kept, small = before.kept, before.kept.quantization
    for asked, has in ((wanted.precision, kept.precision), (wanted.codes, kept.codes)):
        if asked not in (None, has):
            raise UserError(f"{folder}: an index of {has or kept.precision}, not of {asked}; choose another folder")
    if wanted.ranges is not None and not (small and np.array_equal(np.asarray(small.ranges), wanted.ranges)):
        raise UserError(f"{folder}: an index of other ranges than those given; choose another folder")
    return before


def _new_format(wanted: Wanted, files: EmbeddingFiles) -> RowFormat:
    precision, ranges = wanted.precision or "float32", wanted.ranges
    if precision == lance.INT8 and ranges is None:
        ranges = _ranges(files)
    return RowFormat(wanted.codes or lance.PRODUCT, quantization_for(precision, files.dimension, ranges))


def _ranges(files: EmbeddingFiles) -> Ranges:
    """Those of the first `CALIBRATION` rows, at unit length."""
    parts, count = [], 0
    for batch in files.batches():
        rows = prepared(batch.embeddings[: CALIBRATION - count].astype(np.float32), "cosine")
        parts.append(ranges_of(rows))
        count += len(rows)
        if count == CALIBRATION:
            break
    check_calibration(count)
    warn_of_few(count, stacklevel=2)
    return merge_ranges(parts)


class _Fingerprint:
    """A digest of rows: their numbers, embeddings and sentences."""

    def __init__(self, files: EmbeddingFiles):
        self.start, self._hash = f"{files.count} {files.first} ", hashlib.sha256()

    def read(self, batch: FileRows) -> None:
        """Adds the next rows, which are always read as many at a time."""
        self._hash.update(np.asarray(batch.rows, np.int64).tobytes())
        self._hash.update(np.ascontiguousarray(batch.embeddings, np.float32).tobytes())
        self._hash.update(json.dumps(batch.sentences.to_pylist()).encode())

    def __str__(self) -> str:
        return self.start + self._hash.hexdigest()


def _has_rows(before: lance.About, files: EmbeddingFiles) -> bool:
    """Whether the index has these rows; reads them only if it has as many with the same first number."""
    fingerprint = _Fingerprint(files)
    if any(added.startswith(fingerprint.start) for added in before.added):
        for batch in files.batches():
            fingerprint.read(batch)
    return str(fingerprint) in before.added


def _write(folder: Folder, about: lance.About) -> None:
    content = about._asdict() | {"backend": lance.BACKEND, "model": about.model._asdict()}
    del content["kept"]
    content |= about.kept.content() | {"versions": {"simcse_jax": __version__}}
    write_atomically(folder / ABOUT, json.dumps(content, indent=2) + "\n")


def _add_rows(
    folder: Folder, files: EmbeddingFiles, shift: int, before: lance.About | None, kept: RowFormat
) -> "tuple[lancedb.table.Table, str]":
    """The table with the embeddings added, all or none, and their fingerprint."""
    import pyarrow

    database, fingerprint = lance.connect(folder), _Fingerprint(files)
    schema = pyarrow.schema([("row", pyarrow.int64()), ("sentence", pyarrow.string()), *kept.fields(files.dimension)])
    with Progress(files.count, "rows") as bar:
        batches = _batches(files, schema, shift, bar, kept, fingerprint)
        reader = pyarrow.RecordBatchReader.from_batches(schema, batches)
        if before is None:
            table = database.create_table(lance.TABLE, reader, schema=schema, mode="overwrite")
        else:
            table = database.open_table(lance.TABLE)
            if table.version != before.version:
                table.checkout(before.version)
                table.restore()  # without the leftovers of an interrupted build
            table.add(reader)
    return table, str(fingerprint)


def _batches(
    files: EmbeddingFiles,
    schema: "pyarrow.Schema",
    shift: int,
    bar: Progress,
    kept: RowFormat,
    fingerprint: _Fingerprint,
) -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow

    kinds = [kind for _, kind in kept.fields(files.dimension)]
    for batch in files.batches():
        fingerprint.read(batch)
        columns = [
            pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.ravel()), type=kind)
            for values, kind in zip(kept.values(batch.embeddings), kinds, strict=True)
        ]
        yield pyarrow.record_batch([pyarrow.array(batch.rows + shift), batch.sentences, *columns], schema=schema)
        bar.advance(len(batch.rows))


def _find_cells(
    table: "lancedb.table.Table", before: lance.About | None, dimension: int, similarity: str, kept: RowFormat
) -> int:
    """Makes cells and codes, or adds new rows to existing cells; returns the number of rows that gave the cells."""
    rows = table.count_rows()
    if rows < LEAST:
        return 0
    found_in = 0 if before is None else before.found_in
    if found_in and rows < GROWN * found_in:
        table.optimize(cleanup_older_than=NEVER)  # index.json still names an earlier version
        return found_in
    cells = min(math.ceil(rows / ROWS_A_CELL), MOST_CELLS)
    shared: dict[str, Any] = {"distance_type": lance.DISTANCES[similarity], "num_partitions": cells}
    shared |= {"max_iterations": ITERATIONS, "sample_rate": min(SAMPLE_OF_A_CELL, SAMPLE // cells)}
    column = "vector" if kept.quantization is None else "bits"
    table.create_index(column, config=kept.cells(dimension, shared), name=lance.CELLS, replace=True)
    return rows
