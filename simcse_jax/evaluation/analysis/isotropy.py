"""Isotropy and contextualization, from sums of normalized token embeddings, and what single dimensions contribute.

With û = u / ‖u‖, Σ_{i≠j} cos(u_i, u_j) = ‖Σ û_i‖² − n. The definitions are those of Ethayarajh, "How Contextual are
Contextualized Word Representations?" (2019), section 3. All sums are float64, since n is subtracted from a number near
it.
"""

from typing import Any

import numpy as np

TOP = 3  # dimensions whose share is reported
SHARES = (10, 20, 50)  # percent; the number of dimensions for each is reported
REMOVED = (1, 2, 3, 5, 10, 20, 50, 100, 300, 700)  # the k of Table 3


def normalize(embeddings: np.ndarray) -> np.ndarray:
    """(…, D) of any length to length 1, in float64; zeros stay zeros."""
    embeddings = embeddings.astype(np.float64)
    return embeddings / np.maximum(np.linalg.norm(embeddings, axis=-1, keepdims=True), 1e-12)


def mean_cosine(embeddings: np.ndarray) -> np.ndarray:
    """The mean cosine of all pairs of different rows, (…, N, D) to (…): anisotropy (eq. 1), of random tokens."""
    return self_similarity(normalize(embeddings).sum(axis=-2), np.array(embeddings.shape[-2]))


def self_similarity(sums: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """The mean cosine of the embeddings of one type in different contexts (Ethayarajh, definition 1).

    Of sums (…, K, D) of the normalized embeddings of K types, with (K,) terms, 2 or more: (…, K).
    """
    squared = np.einsum("...d,...d->...", sums, sums)  # without a second array of their size
    return np.asarray((squared - contexts) / (contexts * (contexts - 1.0)))


def intra_sentence_similarity(embeddings: np.ndarray) -> np.ndarray:
    """The mean cosine of a sentence's token embeddings with their mean (Ethayarajh, definition 2): (…, T, D) to (…).

    The embeddings are not normalized before the mean.
    """
    centre = normalize(embeddings.mean(axis=-2, dtype=np.float64))
    return np.asarray(np.sum(normalize(embeddings).mean(axis=-2) * centre, axis=-1))


def random_pairs(embeddings: np.ndarray) -> np.ndarray:
    """cos_i = E u_i v_i / ‖u‖‖v‖ over pairs of different rows (eq. 6), (N, D) to (D,); their sum is the mean cosine."""
    units = normalize(embeddings)
    return (units.sum(axis=0) ** 2 - (units**2).sum(axis=0)) / (len(units) * (len(units) - 1))


def self_similarity_pairs(sums: np.ndarray, squares: np.ndarray, contexts: np.ndarray, kind: str) -> np.ndarray:
    """Eq. 6 over pairs of embeddings of the same type.

    Args:
      sums, squares: (K, D) sums of û and of û² of K types, û the normalized embeddings.
      contexts: (K,), the number of terms of each sum.
      kind: "shares" divides each type's contributions by their sum, with each context paired with itself too, and
        takes the mean over types; "types" takes the mean over different contexts, then that over types; "pairs" that
        over all pairs of all types. See `tokens.CHOICES`.

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
    """The parts that the largest contributions make up together, for JSON; None of a whole that is not positive.

    `cumulated` is the share of the first 1, 2, …, D dimensions, the largest first; `top_share` its first three;
    `needed` how many dimensions make up 10, 20 and 50 percent.
    """
    whole = contributions.sum()
    if not whole > 0:
        return {"top_share": [None] * TOP, "needed": {str(share): None for share in SHARES}, "cumulated": None}
    cumulated = np.cumsum(np.sort(contributions)[::-1]) / whole
    needed = {str(share): int(np.argmax(cumulated >= share / 100 - 1e-12)) + 1 for share in SHARES}
    rounded = np.round(cumulated, 6).tolist()
    return {"top_share": rounded[:TOP], "needed": needed, "cumulated": rounded}


def informativity(embeddings: np.ndarray, contributions: np.ndarray) -> dict[int, float]:
    """r² between the cosines of all pairs before and after removing the top k dimensions, k of `REMOVED` (appendix C).

    r is Pearson's, over the lower triangles of the two matrices of cosines of (N, D) tokens, N at least 3; 0 where one
    side does not vary. The dimensions with the largest contributions (D,) are removed first.
    """
    order = np.argsort(-contributions, kind="stable")
    lower = np.tril_indices(len(embeddings), -1)

    def cosines(without: int) -> np.ndarray:
        units = normalize(embeddings[:, order[without:]])
        return (units @ units.T)[lower]

    original, r_squared = cosines(0), {}
    for k in REMOVED:
        if k < embeddings.shape[1]:
            left = cosines(k)
            varies = np.ptp(original) >= 1e-9 and np.ptp(left) >= 1e-9
            r_squared[k] = float(np.corrcoef(original, left)[0, 1] ** 2) if varies else 0.0
    return r_squared
