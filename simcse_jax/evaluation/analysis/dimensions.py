"""What single dimensions contribute to mean cosines: eq. 5 and 6 of the isotropy paper, and its Table 1."""

from typing import Any

import numpy as np

from simcse_jax.evaluation.analysis.isotropy import normalize

TOP = 3  # dimensions whose share is reported
SHARES = (10, 20, 50)  # percent; the number of dimensions for each is reported


def random_pairs(embeddings: np.ndarray) -> np.ndarray:
    """cos_i = E u_i v_i / ‖u‖‖v‖ over pairs of different rows (eq. 6), (N, D) to (D,); their sum is the mean cosine.

    Args:
      embeddings: of any length, N at least 2.
    """
    units = normalize(embeddings)
    return (units.sum(axis=0) ** 2 - (units**2).sum(axis=0)) / (len(units) * (len(units) - 1))


def mean_products(embeddings: np.ndarray) -> np.ndarray:
    """E u_i v_i over all pairs of rows, (N, D) to (D,): eq. 6 without the norms, which is the squared mean.

    It is large for the dominating dimensions of the paper's section 2.2, those with "high absolute means".
    """
    return embeddings.mean(axis=0, dtype=np.float64) ** 2


def self_similarity_pairs(sums: np.ndarray, squares: np.ndarray, contexts: np.ndarray, kind: str) -> np.ndarray:
    """Eq. 6 over pairs of embeddings of the same type.

    Args:
      sums, squares: (K, D) sums of û and of û² of K types, û the normalized embeddings.
      contexts: (K,), the number of terms of each sum.
      kind: "shares" divides each type's contributions by their sum, with each context paired with itself too, and
        takes the mean over types; "types" takes the mean over different contexts, then that over types; "pairs" that
        over all pairs of all types. See `protocol.CHOICES`.

    Returns:
      (D,); their sum is 1 with "shares", otherwise the mean self-similarity.
    """
    if kind == "shares":
        whole = sums**2
        return (whole / np.maximum(whole.sum(axis=1, keepdims=True), 1e-12)).mean(axis=0)
    pairs = (contexts * (contexts - 1.0))[:, None]
    different = sums**2 - squares
    return different.sum(axis=0) / pairs.sum() if kind == "pairs" else (different / pairs).mean(axis=0)


def summary(contributions: np.ndarray) -> dict[str, Any]:
    """The parts that the largest contributions make up together, for JSON.

    Args:
      contributions: (D,).

    Returns:
      `cumulated`, the share of the whole that the first 1, 2, …, D dimensions have, the largest first; `top_share`, its
      first three; `needed`, how many dimensions make up 10, 20 and 50 percent. All None where the whole is not
      positive: there is nothing then to have a share of.
    """
    whole = contributions.sum()
    if not whole > 0:
        return {"top_share": [None] * TOP, "needed": {str(share): None for share in SHARES}, "cumulated": None}
    cumulated = np.cumsum(np.sort(contributions)[::-1]) / whole
    needed = {str(share): int(np.argmax(cumulated >= share / 100 - 1e-12)) + 1 for share in SHARES}
    rounded = np.round(cumulated, 6).tolist()
    return {"top_share": rounded[:TOP], "needed": needed, "cumulated": rounded}
