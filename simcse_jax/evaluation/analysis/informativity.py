"""How much of the cosines is left without the dominant dimensions: eq. 7 to 9 of the isotropy paper, and Table 3."""

from collections.abc import Sequence

import numpy as np

from simcse_jax.evaluation.analysis.isotropy import normalize

REMOVED = (1, 2, 3, 5, 10, 20, 50, 100, 300, 700)  # the k of Table 3


def informativity(
    embeddings: np.ndarray, contributions: np.ndarray, removed: Sequence[int] = REMOVED
) -> dict[int, float]:
    """r² between the cosines of all pairs before and after removing the top k dimensions (appendix C).

    r is Pearson's, over the lower triangles of the two matrices of cosines.

    Args:
      embeddings: (N, D) of any length, of tokens drawn at random; N at least 3.
      contributions: (D,), by which the dimensions are ranked; the largest are removed first.
      removed: numbers of dimensions; only those below D are used.

    Returns:
      r² by k; 0 where one side is constant and does not vary.
    """
    order = np.argsort(-contributions, kind="stable")
    lower = np.tril_indices(len(embeddings), -1)

    def cosines(without: int) -> np.ndarray:
        units = normalize(embeddings[:, order[without:]])
        return (units @ units.T)[lower]

    original = cosines(0)
    return {k: _r_squared(original, cosines(k)) for k in removed if k < embeddings.shape[1]}


def _r_squared(x: np.ndarray, y: np.ndarray) -> float:
    if np.ptp(x) < 1e-9 or np.ptp(y) < 1e-9:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1] ** 2)
