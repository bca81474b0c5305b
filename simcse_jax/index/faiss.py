"""The same search with FAISS, where it is installed."""

import importlib.util

import numpy as np

from simcse_jax.errors import UserError


class FaissSearch:
    """Inner products in a flat index, which is exact, or in cells of which the nearest are looked through."""

    CELLS, CELLS_SEARCHED = 100, 10  # the reference's; fewer cells for a small index
    SAMPLE = 256 * CELLS  # rows that FAISS takes to find the cells
    ROWS_A_CELL = 39  # that FAISS wants in the sample; where there are not as many, the index is flat

    def __init__(self, dimension: int, sample: np.ndarray | None = None):
        """An empty one of D = `dimension` elements.

        Args:
          dimension: D.
          sample: (n, D) float32, rows by which the cells are found; None for a flat index.
        """
        import faiss

        self._index = faiss.IndexFlatIP(dimension)
        cells = 0 if sample is None else min(self.CELLS, len(sample) // self.ROWS_A_CELL)
        if cells:
            self._cells = self._index  # FAISS refers to it and does not keep it
            self._index = faiss.IndexIVFFlat(self._cells, dimension, cells, faiss.METRIC_INNER_PRODUCT)
            self._index.train(np.ascontiguousarray(sample))
            self._index.nprobe = min(self.CELLS_SEARCHED, cells)

    @staticmethod
    def check_installed() -> None:
        """Raises a `UserError` that tells how to install FAISS, if it is not."""
        if importlib.util.find_spec("faiss") is None:
            raise UserError("backend='faiss': FAISS is not installed; pip install 'simcse_jax[faiss]'")

    def __len__(self) -> int:
        return self._index.ntotal

    def add(self, embeddings: np.ndarray) -> None:
        """Adds a copy of embeddings (n, D) float32."""
        self._index.add(np.ascontiguousarray(embeddings))

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores (Q, k), largest first, -inf where fewer were found, and rows (Q, k), for queries (Q, D) float32."""
        scores, rows = self._index.search(np.ascontiguousarray(queries), k)
        return np.where(rows < 0, -np.inf, scores), rows
