"""Isotropy and contextualization, from sums of normalized token embeddings.

The mean cosine of all pairs of n vectors needs no pairs: with û = u / ‖u‖, Σ_{i≠j} cos(u_i, u_j) = ‖Σ û_i‖² − n. The
definitions are those of Ethayarajh, "How Contextual are Contextualized Word Representations?" (2019), section 3, which
the isotropy paper takes over (section 2.2). All sums are float64, since n is subtracted from a number near it.
"""

import numpy as np


def normalize(embeddings: np.ndarray) -> np.ndarray:
    """(…, D) of any length to length 1, in float64; zeros stay zeros."""
    embeddings = embeddings.astype(np.float64)
    return embeddings / np.maximum(np.linalg.norm(embeddings, axis=-1, keepdims=True), 1e-12)


def mean_cosine(embeddings: np.ndarray) -> np.ndarray:
    """The mean cosine of all pairs of different rows, (…, N, D) to (…): anisotropy (eq. 1), of tokens drawn at random.

    Args:
      embeddings: of any length, N at least 2.
    """
    return self_similarity(normalize(embeddings).sum(axis=-2), np.array(embeddings.shape[-2]))


def self_similarity(sums: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """The mean cosine of the embeddings of one type in different contexts (Ethayarajh, definition 1).

    Args:
      sums: (…, K, D) sums of the normalized embeddings of K types.
      contexts: (K,) the number of terms of each sum, 2 or more.

    Returns:
      (…, K).
    """
    squared = np.einsum("...d,...d->...", sums, sums)  # without a second array of their size
    return (squared - contexts) / (contexts * (contexts - 1.0))


def average(similarities: np.ndarray, contexts: np.ndarray, weights: str) -> np.ndarray:
    """The self-similarity of all types together, (…, K) to (…).

    Args:
      similarities: of each type.
      contexts: (K,), in how many contexts each is.
      weights: "types" gives each type the same weight, "pairs" each pair of contexts.
    """
    return np.average(similarities, axis=-1, weights=contexts * (contexts - 1.0) if weights == "pairs" else None)


def intra_sentence_similarity(embeddings: np.ndarray) -> np.ndarray:
    """The mean cosine of a sentence's token embeddings with their mean (Ethayarajh, definition 2): (…, T, D) to (…).

    The embeddings are not normalized before the mean.
    """
    centre = normalize(embeddings.mean(axis=-2, dtype=np.float64))
    return np.sum(normalize(embeddings).mean(axis=-2) * centre, axis=-1)


def l2_norm(embeddings: np.ndarray) -> np.ndarray:
    """The mean length, (…, N, D) to (…)."""
    return np.linalg.norm(embeddings.astype(np.float64), axis=-1).mean(axis=-1)
