"""The same search with FAISS, where it is installed."""

import numpy as np
from jaxtyping import Float32, Int64

from simcse_jax.errors import UserError, installed


class FaissSearch:
    """Inner products in a flat index, which is exact, or in cells, of which only the nearest are searched."""

    CELLS, CELLS_SEARCHED = 100, 10  # the reference's; fewer cells for a small index
    SAMPLE = 256 * CELLS  # rows that FAISS takes to find the cells
    ROWS_A_CELL = 39  # that FAISS wants in the sample; where there are not as many, the index is flat

    def __init__(self, dimension: int, sample: Float32[np.ndarray, "n D"] | None = None):
        """An empty one of D = `dimension` elements.

        Args:
          dimension: D.
          sample: n rows by which the cells are found; None for a flat index.
        """
        import faiss

        flat = faiss.IndexFlatIP(dimension)
        self._index: faiss.Index = flat
        cells = 0 if sample is None else min(self.CELLS, len(sample) // self.ROWS_A_CELL)
        if cells:
            self._cells = flat  # FAISS refers to it and does not keep it
            in_cells = faiss.IndexIVFFlat(flat, dimension, cells, faiss.METRIC_INNER_PRODUCT)
            in_cells.train(np.ascontiguousarray(sample))
            in_cells.nprobe = min(self.CELLS_SEARCHED, cells)
            self._index = in_cells

    @staticmethod
    def check_installed() -> None:
        """Raises a `UserError` that says how to install FAISS, if it is missing."""
        if not installed("faiss"):
            raise UserError("backend='faiss': FAISS is not installed; pip install 'simcse_jax[faiss]'")

    def __len__(self) -> int:
        return self._index.ntotal

    def add(self, embeddings: Float32[np.ndarray, "n D"]) -> None:
        """Adds a copy of n embeddings."""
        self._index.add(np.ascontiguousarray(embeddings))

    def search(
        self, queries: Float32[np.ndarray, "Q D"], k: int
    ) -> tuple[Float32[np.ndarray, "Q {k}"], Int64[np.ndarray, "Q {k}"]]:
        """The scores of the k best rows of each query, best first, -inf where fewer were found; and their numbers."""
        scores, rows = self._index.search(np.ascontiguousarray(queries), k)
        return np.where(rows < 0, -np.inf, scores), rows
