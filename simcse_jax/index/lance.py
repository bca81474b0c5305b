"""An index that stays on a disk or in a bucket: a table of LanceDB with the vectors and their sentences.

index.json               the model, the table's version, the number of its rows; written last
rows.lance/              the table: `row`, `sentence`, `vector`, and an index in cells with codes, or bytes and bits in
                         place of the vectors, see `index.lance_columns`

A query looks into the nearest cells, ranks their rows by short codes, and reads the vectors of only the best rows, by
which these are ranked again. Without cells, as in a small table, all rows are compared.
"""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from simcse_jax.encoding.quantization import Quantization
from simcse_jax.errors import UserError, reason, require
from simcse_jax.host.storage import Folder, as_path, is_remote, read_json
from simcse_jax.index.files import ABOUT
from simcse_jax.index.identity import ModelIdentity, check_maker, is_identity
from simcse_jax.index.index import ROUNDING, Result
from simcse_jax.index.lance_columns import Kept, read_kept
from simcse_jax.index.similarity import prepared

if TYPE_CHECKING:
    import lancedb

BACKEND, TABLE, FOLDER, CODES = "lance", "rows", "rows.lance", "vector_idx"
FORMAT, SMALL_FORMAT = 1, 2  # of vectors in float32; of bytes and bits, which earlier versions do not know
REFINE, NPROBES = 20, 20  # the defaults, which find more than 95% of ten neighbours (docs/use.md has the figures)
CACHE = 256 * 2**20  # bytes of codes that stay in memory
FILES_CACHE = 64 * 2**20  # bytes of what the table's files say about themselves
DISTANCES = {"cosine": "cosine", "dot": "dot", "euclidean": "l2"}  # LanceDB's names; it has no Manhattan distance


class About(NamedTuple):
    """What index.json says."""

    rows: int
    last: int  # the largest number of a row
    version: int  # of the table
    found_in: int  # the number of rows in which its cells were found; 0: it has none
    dimension: int
    model: ModelIdentity
    kept: Kept
    added: tuple[str, ...] = ()  # the fingerprints of the embeddings that were added; earlier versions have none


class LanceIndex:
    """N sentences and their embeddings (N, D), none of which is in memory."""

    def __init__(self, name: str | Path, model: ModelIdentity):
        """Opens the index of that name.

        Raises:
          UserError: when there is none, it is damaged or another model's, its bucket cannot be reached, or LanceDB is
            not installed.
        """
        require(BACKEND, "lancedb")
        self.folder = as_path(str(name))
        about = read_about(self.folder)
        check_maker(self.folder, about.model, model)
        with errors_of(self.folder):
            self._table = connect(self.folder).open_table(TABLE)
            self._table.checkout(about.version)
            rows, schema = self._table.count_rows(), self._table.schema
        if not about.kept.is_in(schema, about.dimension):
            raise UserError(f"{self.folder}: its table does not have what {ABOUT} says; build the index again")
        if rows != about.rows:
            raise UserError(f"{self.folder}: has {rows} rows, but {ABOUT} says {about.rows}; build the index again")
        self._rows, self.dimension, self.similarity = rows, about.dimension, about.model.similarity
        self._kept, self._in_cells, self.maker = about.kept, bool(about.found_in), about.model

    def __len__(self) -> int:
        return self._rows

    @property
    def quantization(self) -> Quantization | None:
        """How the rows are stored, if not in float32."""
        return self._kept.quantization

    def numbers(self) -> Iterator[Int64[np.ndarray, " n"]]:
        """The numbers of all rows, some at a time, in any order."""
        with errors_of(self.folder):
            for batch in self._table.search().select(["row"]).limit(self._rows).to_batches():
                yield batch.column("row").to_numpy()

    def first_sentences(self, count: int) -> list[str]:
        """Those of the first rows that have one."""
        with errors_of(self.folder):
            found = self._table.search().where("sentence != ''").select(["sentence"]).limit(count).to_arrow()
        return found["sentence"].to_pylist()

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

        If more than `top_k` are equal, LanceDB chooses which of them are among the results. The scores are exact; in an
        index of bytes or bits, the numbers that these stand for are scored. Which rows are found is approximate, if
        the table has cells. A cosine with zeros is nothing that LanceDB has: such a query finds nothing, and such a
        row in float32 is not found.

        Args:
          queries: (Q, D) embeddings of any length.
          top_k: at most so many for each.
          threshold: the smallest score of a result, to within 1e-6; None for any.
          refine: so many times `top_k` rows are read and scored, by their vectors, bytes or bits; None is `REFINE`.
          nprobes: the cells that are looked into; None is `NPROBES`.
        """
        least = -math.inf if threshold is None else threshold - ROUNDING
        search = self._search if self.quantization is None else self._search_small
        return [search(query, top_k, least, refine or REFINE, nprobes or NPROBES) for query in queries]

    def _search(
        self, query: Float[np.ndarray, " D"], top_k: int, least: float, refine: int, nprobes: int
    ) -> list[Result]:
        vector = prepared(query[None], self.similarity)[0].astype(np.float32)
        with errors_of(self.folder):
            search: Any = self._table.search(vector, vector_column_name="vector", query_type="vector")
            search = search.distance_type(DISTANCES[self.similarity]).limit(min(top_k, self._rows))
            search = search.nprobes(nprobes).refine_factor(refine).select(["row", "sentence", "_distance"])
            found = search.to_arrow()
        distances = found["_distance"].to_numpy().astype(np.float64)
        scores = -np.sqrt(np.maximum(distances, 0)) if self.similarity == "euclidean" else 1 - distances
        rows, sentences = found["row"].to_pylist(), found["sentence"].to_pylist()
        results = [Result(sentences[n] or "", rows[n], float(np.float32(scores[n]))) for n in range(len(rows))]
        return sorted((one for one in results if one.score >= least), key=lambda one: (-one.score, one.row))

    def _search_small(
        self, query: Float[np.ndarray, " D"], top_k: int, least: float, refine: int, nprobes: int
    ) -> list[Result]:
        """The rows with the best scores of those whose bits differ least, or, without cells, of all rows."""
        assert self._kept.quantization is not None
        vector = prepared(query[None], self.similarity).astype(np.float32)
        if not vector.any():
            return []
        count, column = min(refine * top_k, self._rows) if self._in_cells else self._rows, self._kept.scored
        with errors_of(self.folder):
            search: Any = self._table.search(self._kept.bits(vector)[0], self._kept.searched, "vector")
            search = search.distance_type("hamming").limit(count).nprobes(nprobes)
            found = search.select(["row", "sentence", column, "_distance"]).to_arrow()
        stored = found[column].combine_chunks().flatten().to_numpy().reshape(len(found), self._kept.quantization.width)
        scores, rows = self._kept.scores(vector[0], stored).astype(np.float32), found["row"].to_numpy()
        best = [place for place in np.lexsort((rows, -scores))[:top_k].tolist() if scores[place] >= least]
        sentences = found["sentence"].take(best).to_pylist()
        return [
            Result(sentence or "", int(rows[place]), float(scores[place]))
            for sentence, place in zip(sentences, best, strict=True)
        ]


def is_lance_index(name: str | Path) -> bool:
    """Whether the folder is an index of LanceDB, or lies in a bucket, where no other kind can be."""
    if is_remote(name):
        return True
    path = Path(name).expanduser() / ABOUT
    return path.is_file() and read_json(path).get("backend") == BACKEND


def read_about(folder: Folder) -> About:
    """What an index says about itself."""
    path = folder / ABOUT
    try:
        there = path.exists()
    except Exception as error:  # of a store's client
        raise UserError(f"{folder}: cannot be read: {reason(error)}") from None
    if not there:
        raise UserError(f"{folder}: no index there ({ABOUT} is missing)")
    content = read_json(path)
    if content.get("backend") != BACKEND:
        raise UserError(f"{folder}: not an index of LanceDB; load_index reads it")
    form, damaged = content.get("format"), f"{path}: damaged; build the index again"
    if form not in (FORMAT, SMALL_FORMAT):
        raise UserError(f"{path}: format {form!r:.40}; this version reads {FORMAT} and {SMALL_FORMAT}")
    try:
        model = ModelIdentity(**content["model"])
        numbers = {name: content[name] for name in ("rows", "last", "version", "found_in")}
    except (KeyError, TypeError):
        raise UserError(damaged) from None
    whole = is_identity(model) and all(
        type(number) is int and 0 <= number < 2**62 for number in (*numbers.values(), model.dimension)
    )
    added = content.get("added", [])
    whole = whole and isinstance(added, list) and all(isinstance(each, str) for each in added)
    if not whole or not numbers["rows"] or model.similarity not in DISTANCES:
        raise UserError(damaged)
    small = form == SMALL_FORMAT
    if small and model.similarity != "cosine":
        raise UserError(damaged)
    kept = read_kept(content, model.dimension, small, damaged)
    return About(**numbers, dimension=model.dimension, model=model, kept=kept, added=tuple(added))


def connect(folder: Folder) -> "lancedb.DBConnection":
    """LanceDB's view of a folder."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of a new table that it is new
    import lancedb

    session = lancedb.Session(index_cache_size_bytes=CACHE, metadata_cache_size_bytes=FILES_CACHE)
    return lancedb.connect(str(folder), session=session)


@contextlib.contextmanager
def errors_of(folder: Folder) -> Iterator[None]:
    """LanceDB's errors in one line; it has no class for them."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{folder}: the table cannot be read or written: {reason(error)}") from None


def check_options(on_disk: bool, refine: Any, nprobes: Any, **in_memory: bool) -> None:
    """Checks the options of a search that belong to one kind of index.

    Args:
      on_disk: whether the index is LanceDB's.
      refine, nprobes: see `LanceIndex.search`; None if they are not given.
      in_memory: by the names of the options for other indexes, whether they are given.
    """
    for name, value in (("refine", refine), ("nprobes", nprobes)):
        if value is None:
            continue
        if not on_disk:
            raise UserError(f"{name}={value!r:.40}: is for an index of LanceDB; leave it out")
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 1 <= value <= 2**16:
            raise UserError(f"{name}={value!r:.40}: must be a whole number, from 1 to 65,536")
    for name, given in in_memory.items():
        if on_disk and given:
            raise UserError(f"{name}: is for an index in memory; one of LanceDB takes refine and nprobes")
