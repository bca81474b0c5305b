"""A searchable index of sentences and their embeddings, which stay on the devices as long as they fit."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float, Float32, Int, Shaped

from simcse_jax.devices.backend import check_fork
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.devices.processes import agree
from simcse_jax.errors import UserError
from simcse_jax.host.storage import sha256
from simcse_jax.index.candidates import CODES, RESCORE, Scored, quantization_for, refined_top_k, rescored, vectors_in
from simcse_jax.index.faiss import FaissSearch
from simcse_jax.index.identity import ModelIdentity
from simcse_jax.index.options import Backend, check_precision, check_search
from simcse_jax.index.placed import Placed, Storage
from simcse_jax.index.top_k import Block, decoding_of, top_k
from simcse_jax.vectors.quantization import (
    Quantization,
    Ranges,
    check_calibration,
    checked_ranges,
    merge_ranges,
    ranges_of,
)
from simcse_jax.vectors.similarity import aligned, check_similarity, compared, empty, prepared

LARGE, SMALL = 1 << 17, 1 << 12  # rows of a block: as many large blocks as possible, then small ones
ROUNDING = 1e-6  # of a cosine in float32
MAKING = threading.Lock()  # one thread at a time copies an index to devices; others wait, and search the same copy

T = TypeVar("T")
Rough = Callable[[Float32[np.ndarray, "Q D"], int], Scored]  # a search for a number of rows by what is stored


class Result(NamedTuple):
    """A sentence found by a search."""

    sentence: str
    row: int  # its row in the index, from 0
    score: float  # its cosine with the query, or another similarity


def sharing_copy(thing: T) -> T:
    """A shallow copy that shares arrays; `copy.copy` would drop those that pickling drops."""
    other = object.__new__(type(thing))
    vars(other).update(vars(thing))
    return other


class Index:
    """N sentences and their embeddings (N, D), scaled to unit length if they are compared by cosine."""

    def __init__(
        self, dimension: int, similarity: str = "cosine", precision: str = "float32", ranges: Ranges | None = None
    ):
        """An empty index.

        Args:
          precision: what is kept of an embedding: float32, int8 (a byte per element) or binary (a bit).
          ranges: for int8, (2, D), of embeddings as compared; None for those of the first ones added.
        """
        check_similarity(similarity)
        check_precision(precision, similarity, ranges is not None)
        self.precision = precision
        # For int8: of the rows themselves or, if these are float32, of their copies on devices.
        self.ranges = None if ranges is None else checked_ranges(ranges, dimension)
        self.ranged = 0  # the number of rows from which an index in float32 found its ranges
        self.dimension = dimension
        self.similarity = similarity
        self.maker: ModelIdentity | None = None  # what the embeddings depend on, where it is known
        self.sentences: list[str] = []
        self._large: list[Shaped[np.ndarray, "LARGE C"]] = []  # full, and as they are stored
        self._small: list[Shaped[np.ndarray, "SMALL C"]] = []  # full but the last, which is padded with zeros
        self._placed: Placed | None = None  # on devices, made when needed
        # By whether it is approximate, and storage; made when needed, with the number of rows at that time.
        self._faiss: dict[tuple[bool, str], tuple[FaissSearch, int]] = {}

    def __len__(self) -> int:
        return len(self.sentences)

    __copy__ = sharing_copy

    def __getstate__(self) -> dict[str, Any]:  # without the arrays on devices and in FAISS
        return vars(self) | {"_placed": None, "_faiss": {}}

    def add(self, sentences: Sequence[str], embeddings: Float[np.ndarray, "n D"]) -> None:
        """Appends n sentences with their embeddings (n, D) of any length; refuses embeddings that are not finite.

        Copies only the new rows and less than one block before them.
        """
        if embeddings.shape != (len(sentences), self.dimension):
            raise ValueError(f"{len(sentences)} sentences of {self.dimension}, embeddings {embeddings.shape}")
        rows, lengths = compared(embeddings, self.similarity)
        if not np.isfinite(lengths).all():
            row = int(np.flatnonzero(~np.isfinite(lengths))[0])
            raise UserError(f"the embedding of sentence {row}, {sentences[row]!r:.60}, is not finite")
        if self.precision == "int8" and self.ranges is None and len(rows):
            check_calibration(len(rows))
            self.ranges = ranges_of(rows)
        self._append(rows if self.quantization is None else self.quantization.encode(rows))
        self.sentences.extend(sentences)

    def extend(self, other: "Index") -> None:
        """Appends the sentences of another index that keeps them in the same way."""
        if not len(self):
            self.ranges = other.ranges
        for block in other.blocks():
            self._append(np.asarray(block.rows)[: block.count])
            self.sentences.extend(other.sentences[block.first : block.first + block.count])

    def check_takes(self, dimension: int, similarity: str) -> None:
        """Refuses embeddings of another dimension or similarity."""
        if (self.dimension, self.similarity) != (dimension, similarity):
            raise UserError(
                f"the index has embeddings of {self.dimension} elements, compared by {self.similarity}; "
                f"the model's have {dimension}, compared by {similarity}; build another index"
            )

    @property
    def quantization(self) -> Quantization | None:
        """How the rows are stored, if not in float32."""
        return quantization_for(self.precision, self.dimension, self.ranges)

    def keep(self, sentences: list[str], stored: Shaped[np.ndarray, "N C"]) -> "Index":
        """Fills an empty index with rows in its own form, perhaps memory-mapped, without copying.

        Rows in float32 have unit length for cosines.
        """
        self._append(stored)
        self.sentences = sentences
        return self

    def _append(self, new: Shaped[np.ndarray, "n C"]) -> None:
        rest = len(self) - LARGE * len(self._large)  # rows in small blocks
        full = 0 if rest + len(new) >= LARGE else rest // SMALL
        moved, self._small = self._small[full:], self._small[:full]
        if moved:
            old = np.concatenate(moved)[: rest - SMALL * full]
            new = np.concatenate([old, new], out=empty((len(old) + len(new), *new.shape[1:]), new.dtype))
        new = aligned(new)  # so that a CPU needs no second copy
        for size, blocks in ((LARGE, self._large), (SMALL, self._small)):
            whole = len(new) // size * size
            blocks.extend(new[start : start + size] for start in range(0, whole, size))
            new = new[whole:]
        if len(new):
            self._small.append(np.pad(new, ((0, SMALL - len(new)), (0, 0))))

    def blocks(self) -> Iterator[Block]:
        """All rows, in order."""
        first = 0
        for rows in (*self._large, *self._small):
            yield Block(rows, first, min(len(rows), len(self) - first))
            first += len(rows)

    def stored(self) -> Iterator[Shaped[np.ndarray, "n C"]]:
        """All rows as stored, in order, a block of n rows at a time."""
        for block in self.blocks():
            yield np.asarray(block.rows)[: block.count]

    def embeddings(self) -> Iterator[Float32[np.ndarray, "n D"]]:
        """All embeddings, in order; bytes and bits are decoded."""
        for rows in self.stored():
            yield rows if self.quantization is None else self.quantization.decode(rows)

    def search(
        self,
        queries: Float[np.ndarray, "Q D"],
        top_k: int = 5,
        threshold: float | None = None,
        *,
        approximate: bool = False,
        recall_target: float = 0.95,
        backend: Backend = "jax",
        storage: Storage = "float32",
        rescore: int | None = None,
    ) -> list[list[Result]]:
        """The nearest sentences of each query, best first, of equal ones the lower row first.

        Scores are cosines, or the index's similarity; distances are negative. JAX searches on all devices; with several
        processes, each must have the same index and make the same search.

        Args:
          threshold: the smallest score of a result, to within 1e-6 for rounding; None for any.
          approximate: see `simcse_jax.index.top_k.top_k`; with FAISS, see `simcse_jax.index.faiss`.
          recall_target: the share of the true results that an approximate search should find; not for FAISS.
          backend: `jax`, or `faiss`, which copies the embeddings, compares by cosine or dot product, and returns equal
            scores in any order.
          storage: of the vectors on the devices, if the index keeps float32. 16 bits take half the memory and find the
            same; int8 and binary, also in FAISS, take a quarter and 1/32 and miss few (`simcse_jax.index.candidates`).
          rescore: how many times `top_k` candidates of int8 or binary are scored again; None for `RESCORE`.

        Raises:
          UserError: when an argument is out of its range, or FAISS is not installed or cannot compare so, or the
            processes differ in what they ask for.
        """
        check_search(top_k, threshold, backend, self.similarity, storage, self.precision)
        k = min(top_k, len(self))
        if not k or not len(queries):
            return [[] for _ in range(len(queries))]
        least = -math.inf if threshold is None else threshold - ROUNDING
        queries = prepared(queries, self.similarity).astype(np.float32)
        blocks, small, rescore = list(self.blocks()), self._searched_as(storage), rescore or RESCORE
        if backend == "faiss":
            rough = self._in_faiss(blocks, approximate, storage, small)
            exact = small is None or self.precision == "int8"  # its scores are those of the decoded rows
        else:
            target = recall_target if approximate else None
            asked = f"{k} {target} {storage} {rescore} {sha256(queries)}"
            rough, exact = self._on_devices(blocks, target, storage, small, asked), storage not in CODES
        if exact:
            scores, rows = rough(queries, k)
        else:
            candidates = rough(queries, min(rescore * k, len(self)))
            scores, rows = rescored(queries, *candidates, vectors_in(blocks, self.quantization), k, self.similarity)
        if not (scores < np.inf).all():  # the choice puts NaN first
            row = int(rows[~(scores < np.inf)][0])
            raise UserError(f"row {row} of the index has a score that is not finite; build the index again")
        return self._results(scores[:, :k], rows[:, :k], least)

    def _results(
        self, scores: Float[np.ndarray, "Q k"], rows: Int[np.ndarray, "Q k"], least: float
    ) -> list[list[Result]]:
        """The rows that were found for each query, without those that score less than `least`."""
        return [
            [
                Result(self.sentences[row], row, score)
                for score, row in zip(of_query, numbers, strict=True)
                if score >= least and score > -math.inf
            ]
            for of_query, numbers in zip(scores.tolist(), rows.tolist(), strict=True)
        ]

    def _searched_as(self, storage: Storage) -> Quantization | None:
        """How the rows are quantized where they are searched."""
        if self.precision != "float32":
            return self.quantization
        if storage == "int8" and (self.ranges is None or len(self) >= 2 * self.ranged):  # few rows' do not suit many
            self.ranges = merge_ranges(ranges_of(rows) for rows in self.embeddings())
            self.ranged, self._placed, self._faiss = len(self), None, {}
        return quantization_for(storage, self.dimension, self.ranges)

    def _on_devices(
        self, blocks: Sequence[Block], target: float | None, storage: Storage, small: Quantization | None, asked: str
    ) -> Rough:
        """A search of copies on the devices; exact with 16 bits, and of the decoded rows with bytes and bits."""
        check_fork()
        some = sha256(*[np.asarray(block.rows[:1]) for block in blocks])  # hashing all would read them all
        agree({"the index": f"{len(self)} {self.similarity} {some}", "the search": asked})
        with MAKING:
            if self._placed is None or self._placed.storage != storage:  # keep the vectors in one type only
                self._placed = None
                self._placed = Placed(data_mesh(jax.devices()), storage, small)
            placed = self._placed

        def rough(queries: Float32[np.ndarray, "Q D"], count: int) -> Scored:
            wanted = 1 << (count - 1).bit_length()  # so that few values compile
            if small is None and storage != "float32":
                return refined_top_k(queries, blocks, wanted, placed, target, self.similarity)
            on_devices, decoding = placed.blocks(blocks), decoding_of(small)
            return top_k(queries, on_devices, wanted, placed.mesh, target, self.similarity, decoding)

        return rough

    def _in_faiss(
        self, blocks: Sequence[Block], approximate: bool, storage: Storage, small: Quantization | None
    ) -> Rough:
        """A search of FAISS's index of all rows, after adding those that are new since the last one."""
        with MAKING:
            faiss, made_of = self._faiss.get((approximate, storage), (None, 0))
            if faiss is None or (approximate and len(self) >= 2 * made_of):  # the cells of few rows do not suit many
                sample = None
                if approximate:
                    step = -(-len(self) // FaissSearch.SAMPLE)
                    sample = np.concatenate([rows[::step] for rows in self.embeddings()])
                faiss = FaissSearch(self.dimension, sample, small)
                self._faiss[approximate, storage] = (faiss, len(self))
            for block in blocks:
                if block.first + block.count > len(faiss):
                    new = np.asarray(block.rows)[max(len(faiss) - block.first, 0) : block.count]
                    faiss.add(new if self.quantization is None else self.quantization.decode(new))
        return faiss.search
