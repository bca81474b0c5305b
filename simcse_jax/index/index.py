"""An index to search in: sentences and their embeddings, which lie on the devices as long as they fit."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

import jax
import numpy as np
from jaxtyping import Float, Float32, Int64

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.devices.processes import agree
from simcse_jax.errors import UserError
from simcse_jax.index.faiss import FaissSearch
from simcse_jax.index.placed import DTYPES, Placed, Storage, aligned
from simcse_jax.index.refine import refined_top_k
from simcse_jax.index.similarity import PRODUCTS, check_similarity, prepared
from simcse_jax.index.top_k import Block, top_k
from simcse_jax.storage import sha256

LARGE, SMALL = 1 << 17, 1 << 12  # rows of a block: all lie in large ones but the last, which lie in small ones
ROUNDING = 1e-6  # of a cosine in float32

T = TypeVar("T")
Backend = Literal["jax", "faiss"]
BACKENDS = ("jax", "faiss")


class SearchOptions(TypedDict, total=False):
    """Those of `SimCSE.search` that need their names."""

    column: str | None
    approximate: bool
    recall_target: float
    backend: Backend
    storage: Storage
    refine: int | None
    nprobes: int | None


class Result(NamedTuple):
    """A sentence that was found."""

    sentence: str
    row: int  # its number in the index, from 0
    score: float  # its cosine with the query, or another similarity


def sharing_copy(thing: T) -> T:
    """A shallow copy, which shares arrays: `copy.copy` would otherwise move them as pickling does."""
    other = object.__new__(type(thing))
    vars(other).update(vars(thing))
    return other


class Index:
    """N sentences and their embeddings (N, D), scaled to unit length if they are compared by cosine."""

    def __init__(self, dimension: int, similarity: str = "cosine"):
        """An empty one, for embeddings of `dimension` elements; `similarity` is one of `index.similarity`.

        Raises:
          UserError: for another similarity.
        """
        check_similarity(similarity)
        self.dimension = dimension
        self.similarity = similarity
        self.sentences: list[str] = []
        self._large: list[Float32[np.ndarray, "LARGE D"]] = []  # full
        self._small: list[Float32[np.ndarray, "SMALL D"]] = []  # full but the last, which is padded with zeros
        self._placed: Placed | None = None  # on devices, made when it is asked for
        # Approximate or not, made when it is asked for: with the number of rows that there were then.
        self._faiss: dict[bool, tuple[FaissSearch, int]] = {}

    def __len__(self) -> int:
        return len(self.sentences)

    __copy__ = sharing_copy

    def __getstate__(self) -> dict[str, Any]:  # without the arrays on devices and in FAISS
        return vars(self) | {"_placed": None, "_faiss": {}}

    def add(self, sentences: Sequence[str], embeddings: Float[np.ndarray, "n D"]) -> None:
        """Adds n sentences with their embeddings (n, D) of any length; rows are numbered on.

        It copies only the new rows and less than one block before them.

        Raises:
          UserError: when an embedding is not finite.
        """
        if embeddings.shape != (len(sentences), self.dimension):
            raise ValueError(f"{len(sentences)} sentences of {self.dimension}, embeddings {embeddings.shape}")
        lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            row = int(np.flatnonzero(~np.isfinite(lengths))[0])
            raise UserError(f"the embedding of sentence {row}, {sentences[row]!r:.60}, is not finite")
        self._append(prepared(embeddings, self.similarity).astype(np.float32, copy=False))
        self.sentences.extend(sentences)

    def extend(self, other: "Index") -> None:
        """Adds the sentences of another index; rows are numbered on.

        Raises:
          UserError: when the other index compares embeddings in another way, or they differ in size.
        """
        if (self.dimension, self.similarity) != (other.dimension, other.similarity):
            raise UserError(
                f"the index has embeddings of {self.dimension} elements, compared by {self.similarity}; "
                f"the model's have {other.dimension}, compared by {other.similarity}; build another index"
            )
        for block in other.blocks():
            self._append(np.asarray(block.rows)[: block.count])
            self.sentences.extend(other.sentences[block.first : block.first + block.count])

    @classmethod
    def from_rows(
        cls, sentences: list[str], embeddings: Float32[np.ndarray, "N D"], similarity: str = "cosine"
    ) -> "Index":
        """Of embeddings (N, D) float32 that may be memory-mapped: they are not copied; for cosines of unit length."""
        index = cls(embeddings.shape[1], similarity)
        index._append(embeddings)
        index.sentences = sentences
        return index

    def _append(self, new: Float32[np.ndarray, "n D"]) -> None:
        rest = len(self) - LARGE * len(self._large)  # rows in small blocks
        full = 0 if rest + len(new) >= LARGE else rest // SMALL
        moved, self._small = self._small[full:], self._small[:full]
        if moved:
            new = np.concatenate([np.concatenate(moved)[: rest - SMALL * full], new])
        new = aligned(new)  # so that a CPU needs no second copy
        for size, blocks in ((LARGE, self._large), (SMALL, self._small)):
            whole = len(new) // size * size
            blocks.extend(new[start : start + size] for start in range(0, whole, size))
            new = new[whole:]
        if len(new):
            self._small.append(np.pad(new, ((0, SMALL - len(new)), (0, 0))))

    def blocks(self) -> Iterator[Block]:
        """All rows, in their order."""
        first = 0
        for rows in (*self._large, *self._small):
            yield Block(rows, first, min(len(rows), len(self) - first))
            first += len(rows)

    def embeddings(self) -> Iterator[Float32[np.ndarray, "n D"]]:
        """All embeddings, in their order: those of a block of n rows together."""
        for block in self.blocks():
            yield np.asarray(block.rows)[: block.count]

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
    ) -> list[list[Result]]:
        """The nearest sentences of each query, best first, of equal ones the lower row first.

        Scores are cosines, or those of the index's similarity; distances are negative. JAX searches on all devices; if
        they are those of several processes, each of them has the same index and must ask for the same.

        Args:
          queries: (Q, D) embeddings of any length.
          top_k: at most so many for each.
          threshold: the smallest score of a result, to within 1e-6, which is rounding; None for any.
          approximate: see `simcse_jax.index.top_k.top_k`; with FAISS, see `simcse_jax.index.faiss`.
          recall_target: the share of the true ones that an approximate search is to find; not for FAISS.
          backend: `jax`, or `faiss`, which takes a copy of the embeddings and leaves the order of equal ones open; it
            compares by cosine or dot product.
          storage: of the vectors on the devices; 16 bits take half the memory and find the same, see
            `simcse_jax.index.refine`.

        Raises:
          UserError: when an argument is out of its range, or FAISS is not installed or cannot compare so, or the
            processes differ in what they ask for.
        """
        check_search(top_k, threshold, recall_target, backend, self.similarity, storage)
        k = min(top_k, len(self))
        if not k or not len(queries):
            return [[] for _ in range(len(queries))]
        least = -math.inf if threshold is None else threshold - ROUNDING
        queries = prepared(queries, self.similarity).astype(np.float32)
        if backend == "faiss":
            scores, rows = self._search_faiss(queries, k, approximate)
        else:
            scores, rows = self._search_jax(queries, k, recall_target if approximate else None, storage)
        return [
            [
                Result(self.sentences[row], row, score)
                for score, row in zip(of_query, numbers, strict=True)
                if score >= least and score > -math.inf
            ]
            for of_query, numbers in zip(scores.tolist(), rows.tolist(), strict=True)
        ]

    def _search_jax(
        self, queries: Float32[np.ndarray, "Q D"], k: int, recall_target: float | None, storage: Storage
    ) -> tuple[Float32[np.ndarray, "Q {k}"], Int64[np.ndarray, "Q {k}"]]:
        blocks = list(self.blocks())
        some = sha256(*[np.asarray(block.rows[:1]) for block in blocks])  # all would have to be read
        asked = f"{k} {recall_target} {storage} {sha256(queries)}"
        agree({"the index": f"{len(self)} {self.similarity} {some}", "the search": asked})
        if self._placed is None or self._placed.storage != storage:  # the vectors are there in one type, not in two
            self._placed = None
            self._placed = Placed(data_mesh(jax.devices()), storage)
        placed = self._placed
        wanted = 1 << (k - 1).bit_length()  # so that few values compile
        if storage == "float32":
            scores, rows = top_k(queries, placed.blocks(blocks), wanted, placed.mesh, recall_target, self.similarity)
        else:
            scores, rows = refined_top_k(queries, blocks, wanted, placed, recall_target, self.similarity)
        if not (scores < np.inf).all():  # the choice puts what is no number first
            row = int(rows[~(scores < np.inf)][0])
            raise UserError(f"row {row} of the index has a score that is not finite; build the index again")
        return scores[:, :k], rows[:, :k]

    def _search_faiss(
        self, queries: Float32[np.ndarray, "Q D"], k: int, approximate: bool
    ) -> tuple[Float32[np.ndarray, "Q {k}"], Int64[np.ndarray, "Q {k}"]]:
        faiss, made_of = self._faiss.get(approximate, (None, 0))
        if faiss is None or (approximate and len(self) >= 2 * made_of):  # cells found in few rows do not suit many
            sample = None
            if approximate:
                step = -(-len(self) // FaissSearch.SAMPLE)
                sample = np.concatenate([rows[::step] for rows in self.embeddings()])
            faiss = FaissSearch(self.dimension, sample)
            self._faiss[approximate] = (faiss, len(self))
        for block in self.blocks():
            if block.first + block.count > len(faiss):
                faiss.add(np.asarray(block.rows)[max(len(faiss) - block.first, 0) : block.count])
        return faiss.search(queries, k)


def check_search(
    top_k: Any,
    threshold: Any,
    recall_target: Any = 0.95,
    backend: Any = "jax",
    similarity: str = "cosine",
    storage: Any = "float32",
) -> None:
    """Checks the arguments of `Index.search` before anything is encoded.

    Raises:
      UserError: naming the argument that is out of its range, or when FAISS is not installed or cannot compare so.
    """
    if not isinstance(top_k, int | np.integer) or isinstance(top_k, bool) or top_k < 1:
        raise UserError(f"top_k={top_k!r}: must be a whole number, 1 or more")
    if threshold is not None and (not isinstance(threshold, int | float | np.number) or math.isnan(threshold)):
        raise UserError(f"threshold={threshold!r}: must be a number; a cosine is at least -1 and at most 1")
    if not isinstance(recall_target, int | float) or not 0 < recall_target <= 1:
        raise UserError(f"recall_target={recall_target!r}: must be above 0 and at most 1")
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise UserError(f"backend={backend!r}: not one of {', '.join(BACKENDS)}")
    if not isinstance(storage, str) or storage not in DTYPES:
        raise UserError(f"storage={storage!r}: not one of {', '.join(DTYPES)}")
    if backend != "jax" and storage != "float32":
        raise UserError(f"storage={storage!r}: is for backend='jax'; {backend} keeps float32")
    if backend == "faiss":
        FaissSearch.check_installed()
        if similarity not in PRODUCTS:
            raise UserError(f"backend='faiss': compares by {' or '.join(PRODUCTS)}, not by {similarity}; leave it out")
