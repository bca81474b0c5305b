"""The same search with FAISS, where it is installed."""

from typing import Any, cast

import numpy as np
from jaxtyping import Float32, Int64

from simcse_jax.encoding.quantization import Quantization
from simcse_jax.errors import UserError, installed


class FaissSearch:
    """Inner products in a flat index, which is exact, or in cells, of which only the nearest are searched."""

    CELLS, CELLS_SEARCHED = 100, 10  # the reference's; fewer cells for a small index
    SAMPLE = 256 * CELLS  # rows that FAISS takes to find the cells
    ROWS_A_CELL = 39  # that FAISS wants in the sample; where there are not as many, the index is flat

    def __init__(
        self,
        dimension: int,
        sample: Float32[np.ndarray, "n D"] | None = None,
        quantization: Quantization | None = None,
    ):
        """An empty one of D = `dimension` elements.

        Args:
          dimension: D.
          sample: n rows by which the cells are found; None for a flat index.
          quantization: int8 or ubinary, how rows are kept; None: in float32. Rows of int8 are compared with the query
            in float32, as the numbers that they stand for; of ubinary, those bits are counted that differ.
        """
        import faiss

        self._quantization, self._index, self._cells = quantization, cast(Any, None), cast(Any, None)
        if quantization is not None:
            make = self._of_bytes if quantization.precision == "int8" else self._of_bits
            self._index = make(quantization, sample)
            return
        flat = faiss.IndexFlatIP(dimension)
        self._index = flat
        if sample is not None and (cells := self._cell_count(sample)):
            self._cells = flat  # FAISS refers to it and does not keep it
            in_cells = faiss.IndexIVFFlat(flat, dimension, cells, faiss.METRIC_INNER_PRODUCT)
            in_cells.train(np.ascontiguousarray(sample))
            in_cells.nprobe = min(self.CELLS_SEARCHED, cells)
            self._index = in_cells

    def _cell_count(self, sample: Float32[np.ndarray, "n D"] | None) -> int:
        return 0 if sample is None else min(self.CELLS, len(sample) // self.ROWS_A_CELL)

    def _of_bytes(self, quantization: Quantization, sample: Float32[np.ndarray, "n D"] | None) -> Any:
        import faiss

        assert quantization.ranges is not None
        kind, size, cells = faiss.ScalarQuantizer.QT_8bit, quantization.dimension, self._cell_count(sample)
        if sample is not None and cells:
            self._cells = faiss.IndexFlatIP(size)
            index: Any = faiss.IndexIVFScalarQuantizer(
                self._cells, size, cells, kind, faiss.METRIC_INNER_PRODUCT, False
            )
            index.train(np.ascontiguousarray(sample))
            index.nprobe = min(self.CELLS_SEARCHED, cells)
        else:
            index = faiss.IndexScalarQuantizer(size, kind, faiss.METRIC_INNER_PRODUCT)
            index.is_trained = True
        # FAISS's own steps, from the smallest value and the width of each dimension, are those of `Quantization`.
        low, high = quantization.ranges
        faiss.copy_array_to_vector(np.concatenate([low, high - low]), index.sq.trained)
        return index

    def _of_bits(self, quantization: Quantization, sample: Float32[np.ndarray, "n D"] | None) -> Any:
        import faiss

        size, cells = 8 * quantization.width, self._cell_count(sample)
        if sample is None or not cells:
            return faiss.IndexBinaryFlat(size)
        self._cells = faiss.IndexBinaryFlat(size)
        index = faiss.IndexBinaryIVF(self._cells, size, cells)
        index.train(quantization.encode(sample))
        index.nprobe = min(self.CELLS_SEARCHED, cells)
        return index

    @property
    def _has_bits(self) -> bool:
        return self._quantization is not None and self._quantization.precision == "ubinary"

    @staticmethod
    def check_installed() -> None:
        """Raises a `UserError` that says how to install FAISS, if it is missing."""
        if not installed("faiss"):
            raise UserError("backend='faiss': FAISS is not installed; pip install 'simcse_jax[faiss]'")

    def __len__(self) -> int:
        return self._index.ntotal

    def add(self, embeddings: Float32[np.ndarray, "n D"]) -> None:
        """Adds a copy of n embeddings."""
        if self._quantization is not None and self._has_bits:
            self._index.add(self._quantization.encode(embeddings))
        else:
            self._index.add(np.ascontiguousarray(embeddings))

    def search(
        self, queries: Float32[np.ndarray, "Q D"], k: int
    ) -> tuple[Float32[np.ndarray, "Q {k}"], Int64[np.ndarray, "Q {k}"]]:
        """The scores of the k best rows of each query, best first, -inf where fewer were found; and their numbers."""
        if self._quantization is not None and self._has_bits:
            differing, rows = self._index.search(self._quantization.encode(queries), k)
            scores = 1 - 2 * differing.astype(np.float32) / self._quantization.dimension  # the cosine of the signs
        else:
            scores, rows = self._index.search(np.ascontiguousarray(queries), k)
        return np.where(rows < 0, -np.inf, scores), rows
