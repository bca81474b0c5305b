"""Search with FAISS, where it is installed."""

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from simcse_jax.vectors.quantization import Quantization


class FaissSearch:
    """Inner products in a flat index, which is exact, or in cells, of which only the nearest are searched."""

    CELLS, CELLS_SEARCHED = 100, 10  # the reference's; fewer cells for a small index
    SAMPLE = 256 * CELLS  # rows from which FAISS finds the cells
    ROWS_A_CELL = 39  # that FAISS wants in the sample; with fewer, the index is flat

    def __init__(
        self,
        dimension: int,
        sample: Float32[np.ndarray, "n D"] | None = None,
        quantization: Quantization | None = None,
    ):
        """An empty index.

        Args:
          sample: n rows from which to find the cells; None for a flat index.
          quantization: int8 or ubinary; None for float32. Rows of int8 are decoded and compared with the query in
            float32; for ubinary, differing bits are counted.
        """
        import faiss

        self._quantization = quantization
        self._has_bits = quantization is not None and quantization.precision == "ubinary"
        size = 8 * quantization.width if quantization and self._has_bits else dimension
        cells = 0 if sample is None else min(self.CELLS, len(sample) // self.ROWS_A_CELL)
        if self._has_bits:
            self._index: Any = faiss.index_binary_factory(size, f"BIVF{cells}" if cells else "BFlat")
        else:
            kind = f"IVF{cells}," * bool(cells) + ("SQ8" if quantization else "Flat")
            self._index = faiss.index_factory(size, kind, faiss.METRIC_INNER_PRODUCT)
            self._index.is_trained = not cells
        if sample is not None and cells:
            if not self._has_bits:
                self._index.by_residual = False
            self._index.train(self._as_array(sample))
            self._index.nprobe = min(self.CELLS_SEARCHED, cells)
        if quantization and quantization.ranges is not None:
            # FAISS's own steps, from the smallest value and the width of each dimension, are those of `Quantization`.
            low, high = quantization.ranges
            faiss.copy_array_to_vector(np.concatenate([low, high - low]), self._index.sq.trained)

    def _as_array(self, embeddings: Float32[np.ndarray, "n D"]) -> Shaped[np.ndarray, "n C"]:
        """Embeddings as FAISS takes them."""
        if self._quantization is not None and self._has_bits:
            return self._quantization.encode(embeddings)
        return np.ascontiguousarray(embeddings)

    def __len__(self) -> int:
        return self._index.ntotal

    def add(self, embeddings: Float32[np.ndarray, "n D"]) -> None:
        """Adds a copy of n embeddings."""
        self._index.add(self._as_array(embeddings))

    def search(
        self, queries: Float32[np.ndarray, "Q D"], k: int
    ) -> tuple[Float32[np.ndarray, "Q {k}"], Int64[np.ndarray, "Q {k}"]]:
        """The scores of each query's k best rows, best first, and the rows' numbers; -inf where fewer were found."""
        scores, rows = self._index.search(self._as_array(queries), k)
        if self._quantization is not None and self._has_bits:  # the numbers of bits that differ
            scores = 1 - 2 * scores.astype(np.float32) / self._quantization.dimension  # the cosine of the signs
        return np.where(rows < 0, -np.inf, scores), rows
