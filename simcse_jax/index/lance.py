"""An index on a disk or in a bucket: a LanceDB table of vectors and their sentences.

index.json               the model, the table's version, the number of its rows; written last
rows.lance/              the table: `row`, `sentence`, `vector`, and an index in cells with codes, or bytes and bits in
                         place of the vectors

A query searches the nearest cells, ranks their rows by short codes, reads only the best rows' vectors, and ranks these
again. Without cells, as in a small table, all rows are compared.

What the table keeps of an embedding, and what finds candidates:

precision   columns of the table                                  candidates
float32     `vector`                                              by LanceDB's own codes of vectors, see `CODES`
int8        `code`, a byte an element; `bits`, a bit an element   by the bits that differ from the query's
binary      `bits`                                                the same

LanceDB compares bits but not bytes, so an index of int8 has bits too. Its candidates are then scored as elsewhere: the
query in float32 with the decoded row (`vectors.quantization`).
"""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64, Shaped

from simcse_jax.errors import UserError, reason, require
from simcse_jax.host.storage import Folder, as_path, is_remote, read_json
from simcse_jax.index import identity
from simcse_jax.index.candidates import quantization_for
from simcse_jax.index.folder import ABOUT
from simcse_jax.index.identity import ModelIdentity
from simcse_jax.index.index import ROUNDING, Result
from simcse_jax.vectors.quantization import Quantization, Ranges
from simcse_jax.vectors.similarity import prepared

if TYPE_CHECKING:
    import lancedb
    import pyarrow

BACKEND, TABLE, FOLDER, CELLS = "lance", "rows", "rows.lance", "vector_idx"
REFINE, NPROBES = 20, 20  # defaults, which find more than 95% of ten neighbours (figures in docs/background/search.md)
CACHE = 256 * 2**20  # bytes of codes in memory
FILES_CACHE = 64 * 2**20  # bytes of the table files' metadata in memory
DISTANCES = {"cosine": "cosine", "dot": "dot", "euclidean": "l2"}  # LanceDB's names; it has no Manhattan distance
PRODUCT, INT8, BINARY = CODES = ("product", "int8", "binary")
CODE_OF = 4  # elements per byte of a product code, or the next number that divides the dimension
MOST_OF_A_CODE = 8


class Wanted(NamedTuple):
    """The options of an index; None for the existing index's own, or the default."""

    precision: str | None = None
    ranges: Ranges | None = None
    codes: str | None = None


DEFAULTS = Wanted()


class RowFormat(NamedTuple):
    """The columns that keep an embedding in a table."""

    codes: str | None = PRODUCT  # of vectors in float32
    quantization: Quantization | None = None  # None for float32

    @property
    def precision(self) -> str:
        """One of `index.options.PRECISIONS`."""
        return "float32" if self.quantization is None else INT8 if self.quantization.ranges is not None else BINARY

    @property
    def scored(self) -> str:
        """The column that gives a candidate's score."""
        return {"float32": "vector", INT8: "code", BINARY: "bits"}[self.precision]

    def fields(self, dimension: int) -> "list[tuple[str, pyarrow.DataType]]":
        """The columns of an embedding."""
        from pyarrow import float32, int8, list_, uint8

        if self.quantization is None:
            return [("vector", list_(float32(), dimension))]  # in float16, scores would be rounded too
        bits = ("bits", list_(uint8(), -(-dimension // 8)))
        return [("code", list_(int8(), dimension)), bits] if self.precision == INT8 else [bits]

    def values(self, embeddings: Float[np.ndarray, "n D"]) -> list[Shaped[np.ndarray, "n C"]]:
        """The values of the columns of `fields` for n embeddings of any length."""
        rows = embeddings.astype(np.float32, copy=False)
        if self.quantization is None:
            return [rows]
        rows = prepared(rows, "cosine").astype(np.float32, copy=False)
        stored = self.quantization.encode(rows)
        return [stored, bits_of(rows)] if self.precision == INT8 else [stored]

    def content(self) -> dict[str, Any]:
        """The fields of index.json."""
        if self.quantization is None:
            return identity.precision_content("float32", None) | {"codes": self.codes}
        return identity.precision_content(self.precision, self.quantization.ranges)

    def cells(self, dimension: int, shared: Mapping[str, Any]) -> Any:
        """LanceDB's configuration for cells and codes; `shared` is common to all codes."""
        from lancedb.index import IvfFlat, IvfPq, IvfRq, IvfSq

        if self.quantization is not None:
            return IvfFlat(**{**shared, "distance_type": "hamming"})
        if self.codes != PRODUCT:
            return IvfSq(**shared) if self.codes == INT8 else IvfRq(**shared)
        width = next((width for width in range(CODE_OF, MOST_OF_A_CODE + 1) if dimension % width == 0), None)
        # Some dimensions have no such divisor.
        return IvfFlat(**shared) if width is None else IvfPq(**shared, num_sub_vectors=dimension // width)


class About(NamedTuple):
    """The contents of index.json."""

    rows: int
    last: int  # the largest row number
    version: int  # of the table
    found_in: int  # the number of rows from which cells were found; 0 without cells
    added: list[str]  # fingerprints of the added embeddings
    model: ModelIdentity
    kept: RowFormat


class LanceIndex:
    """N sentences and their embeddings (N, D), none of them in memory."""

    def __init__(self, name: str | Path, model: ModelIdentity):
        """Opens an index; refuses one that another model made."""
        require(BACKEND, "lancedb")
        self.folder = as_path(str(name))
        about = read_about(self.folder)
        identity.check_maker(self.folder, about.model, model)
        with errors_of(self.folder):
            self._table = connect(self.folder).open_table(TABLE)
            self._table.checkout(about.version)
            self._rows = self._table.count_rows()
        self.dimension, self.similarity, self.maker = about.model.dimension, about.model.similarity, about.model
        self._kept, self._in_cells = about.kept, bool(about.found_in)

    def __len__(self) -> int:
        return self._rows

    @property
    def quantization(self) -> Quantization | None:
        """How the rows are stored, if not in float32."""
        return self._kept.quantization

    def numbers(self) -> Iterator[Int64[np.ndarray, " n"]]:
        """All row numbers, some at a time, in any order."""
        with errors_of(self.folder):
            for batch in self._table.search().select(["row"]).limit(self._rows).to_batches():
                yield batch.column("row").to_numpy()

    def first_sentences(self, count: int) -> list[str]:
        """The sentences of the first rows that have one."""
        with errors_of(self.folder):
            table = self._table.search().where("sentence != ''").select(["sentence"]).limit(count).to_arrow()
        return table["sentence"].to_pylist()

    def search(
        self,
        queries: Float[np.ndarray, "Q D"],
        top_k: int = 5,
        threshold: float | None = None,
        *,
        refine: int | None = None,
        nprobes: int | None = None,
    ) -> list[list[Result]]:
        """The nearest sentences of each query, best first, of equal ones the lower row first.

        If more than `top_k` are equal, LanceDB chooses which to return. Scores are exact, with bytes and bits decoded.
        With cells, the rows found are approximate. LanceDB has no cosine with a zero vector: such a query finds
        nothing, and such a row in float32 is never found.

        Args:
          threshold: the smallest score of a result, to within 1e-6; None for any.
          refine: how many times `top_k` rows are read and scored; None for `REFINE`.
          nprobes: the number of cells searched; None for `NPROBES`.
        """
        least = -math.inf if threshold is None else threshold - ROUNDING
        return [self._search(query, top_k, least, refine or REFINE, nprobes or NPROBES) for query in queries]

    def _search(
        self, query: Float[np.ndarray, " D"], top_k: int, least: float, refine: int, nprobes: int
    ) -> list[Result]:
        """The best rows of the nearest cells, or of all; bytes and bits score those whose bits differ least."""
        vector, small = prepared(query[None], self.similarity).astype(np.float32), self.quantization
        if small is not None and not vector.any():
            return []
        with errors_of(self.folder):
            if small is None:
                search: Any = self._table.search(vector[0], "vector", "vector").limit(min(top_k, self._rows))
                search = search.distance_type(DISTANCES[self.similarity]).refine_factor(refine)
            else:
                count = min(refine * top_k, self._rows) if self._in_cells else self._rows
                search = self._table.search(bits_of(vector)[0], "bits", "vector").limit(count)
                search = search.distance_type("hamming")
            stored = [] if small is None else [self._kept.scored]
            table = search.nprobes(nprobes).select(["row", "sentence", "_distance", *stored]).to_arrow()
        if small is None:
            distances = table["_distance"].to_numpy().astype(np.float64)
            scores = -np.sqrt(np.maximum(distances, 0)) if self.similarity == "euclidean" else 1 - distances
        else:
            codes = table[self._kept.scored].combine_chunks().flatten().to_numpy().reshape(len(table), small.width)
            scores = small.decode(codes).astype(np.float64) @ vector[0].astype(np.float64)
        scores, rows = scores.astype(np.float32), table["row"].to_numpy()
        best = np.lexsort((rows, -scores))[:top_k]
        best = best[scores[best] >= least]
        columns = table["sentence"].take(best).to_pylist(), rows[best].tolist(), scores[best].tolist()
        return [Result(sentence or "", row, score) for sentence, row, score in zip(*columns, strict=True)]


def bits_of(rows: Float[np.ndarray, "n D"]) -> Shaped[np.ndarray, "n C"]:
    """The bits of queries or rows."""
    return Quantization("ubinary", rows.shape[1]).encode(rows)


def is_lance_index(name: str | Path) -> bool:
    """Whether a folder is an index of LanceDB or in a bucket, where no other kind can be."""
    if is_remote(name):
        return True
    path = Path(name).expanduser() / ABOUT
    return path.is_file() and read_json(path).get("backend") == BACKEND


def read_about(folder: Folder) -> About:
    """Reads index.json."""
    path = folder / ABOUT
    with errors_of(folder):  # of a store's client
        if not path.exists():
            raise UserError(f"{folder}: no index there ({ABOUT} is missing)")
    content = read_json(path)
    if content.get("backend") != BACKEND:
        raise UserError(f"{folder}: not an index of LanceDB; load_index reads it")
    damaged = identity.DAMAGED.format(path)
    model = identity.read_identity(content.get("model"), damaged)
    precision, ranges = identity.read_precision(content, model.dimension, path)
    kept = RowFormat(content.get("codes"), quantization_for(precision, model.dimension, ranges))
    numbers = {name: content.get(name) for name in ("rows", "last", "version", "found_in")}
    if not all(isinstance(number, int) for number in numbers.values()) or model.similarity not in DISTANCES:
        raise UserError(damaged)
    return About(**numbers, added=content.get("added", []), model=model, kept=kept)


def connect(folder: Folder) -> "lancedb.DBConnection":
    """LanceDB's view of a folder."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # silences a warning about new tables
    import lancedb

    session = lancedb.Session(index_cache_size_bytes=CACHE, metadata_cache_size_bytes=FILES_CACHE)
    return lancedb.connect(str(folder), session=session)


@contextlib.contextmanager
def errors_of(folder: Folder) -> Iterator[None]:
    """Turns LanceDB's errors, which have no common class, into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{folder}: the table cannot be read or written: {reason(error)}") from None
