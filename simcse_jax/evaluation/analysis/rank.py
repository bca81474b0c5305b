"""The rank bottleneck of Barlow Twins: the rank of the dimensions' correlation in a batch (SimCSE++, section 4.2).

The correlation of D dimensions over N sentences is the product of a (D, N) and an (N, D) matrix, so its rank is at most
min(N, D), and the identity, to which Barlow Twins pulls it, has rank D. M artificial rows raise the bound to
min(N + M, D). Here both are measured, on a model's embeddings.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64

from simcse_jax.errors import UserError

# How the dimensions are correlated, and what that is.
READINGS = {
    "paper": "equation 4: cosines of the columns, not centred",
    "released": "as the released code: columns batch-normalized over all rows, hence centred, which takes one rank",
}

EPSILON = 1e-5  # that PyTorch's batch norm adds to a variance


class Rank(NamedTuple):
    """Of the correlation matrices of some batches."""

    batch: int  # N sentences
    artificial: int  # M rows
    reading: str  # of `READINGS`
    bound: int  # that the rank cannot exceed
    ranks: list[int]  # numerical, one a batch
    effective_ranks: list[float]  # one a batch
    tolerance: float  # the largest of the batches': singular values up to it count as zero

    def to_json(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return self._asdict() | {"effective_ranks": [round(value, 3) for value in self.effective_ranks]}


def correlation(
    first: Float[np.ndarray, "N D"],
    second: Float[np.ndarray, "N D"],
    artificial: Float[np.ndarray, "M D"],
    reading: str = "paper",
) -> Float64[np.ndarray, "D D"]:
    """The correlation of each dimension of one view with each of the other.

        C_cd = Σ_i z¹_ic z²_id / ( √Σ_i (z¹_ic)² √Σ_i (z²_id)² )

    SimCSE++, equation 4; i runs over the N sentences and the M artificial rows, the same below both views. With the
    reading `released` z is centred first, by its mean over these rows, and (N + M) · 1e-5 is added under the roots, as
    PyTorch's batch norm does. A dimension without any variation correlates with none.

    Args:
      first, second: z¹ and z², the embeddings of a batch.
      artificial: rows of N(0, 1); M may be 0.
      reading: of `READINGS`.
    """

    def columns(view: Float[np.ndarray, "N D"]) -> Float64[np.ndarray, "N+M D"]:
        z = np.concatenate([view, artificial]).astype(np.float64)
        added = 0.0
        if reading == "released":
            z, added = z - z.mean(axis=0), EPSILON * len(z)
        norms = np.sqrt(np.sum(z * z, axis=0) + added)
        return np.divide(z, norms, out=np.zeros_like(z), where=norms > 0)

    return columns(first).T @ columns(second)


def numerical_rank(singular_values: Float64[np.ndarray, " D"]) -> tuple[int, float]:
    """How many singular values of a (D, D) matrix are above D · ε · the largest one, and that tolerance.

    ε is float64's, 2.2e-16. This is the default of `numpy.linalg.matrix_rank` and of MATLAB's `rank`.
    """
    tolerance = float(len(singular_values) * np.finfo(np.float64).eps * singular_values.max(initial=0.0))
    return int(np.sum(singular_values > tolerance)), tolerance


def effective_rank(singular_values: Float64[np.ndarray, " D"]) -> float:
    """exp(−Σ_k p_k ln p_k), p_k = σ_k / Σ_j σ_j: Roy & Vetterli 2007, "The effective rank", definition 1.

    It is n where n singular values are equal and the others zero, and less where a few are larger than the others; of
    zeros only it is 0.
    """
    whole = singular_values.sum()
    if whole == 0:
        return 0.0
    shares = singular_values[singular_values > 0] / whole
    return float(np.exp(-np.sum(shares * np.log(shares))))


def bound(batch: int, artificial: int, size: int, reading: str) -> int:
    """The highest rank that a correlation of D dimensions can have: min(N + M, D); centring takes one from N + M."""
    return min(batch + artificial - (reading == "released"), size)


def draw(sentences: int, batch: int, batches: int, seed: int) -> list[np.ndarray]:
    """Random batches: the rows of N different sentences each."""
    if batch > sentences:
        raise UserError(f"--rank {batch}: the data have {sentences:,} different sentences; a batch takes {batch:,}")
    generator = np.random.default_rng((seed, batch))
    return [generator.choice(sentences, batch, replace=False) for _ in range(batches)]


def measure(
    embeddings: Float[np.ndarray, "S D"],
    sizes: Sequence[int],
    artificial: Sequence[int],
    *,
    batches: int,
    seed: int,
) -> list[Rank]:
    """The ranks for every reading, batch size and number of artificial rows.

    Both views are the embeddings themselves, without dropout: the bound is the same.

    Args:
      embeddings: of S different sentences.
      sizes: N.
      artificial: M; the first rows of more are those of fewer.
    """
    if not np.all(np.isfinite(embeddings)):
        raise UserError("the model's embeddings are not finite; they have no correlation")
    size = embeddings.shape[1]
    found = []
    for reading in READINGS:
        for batch in sizes:
            drawn = draw(len(embeddings), batch, batches, seed)
            for count in artificial:
                spectra = []
                for place, chosen in enumerate(drawn):
                    rows = np.random.default_rng((seed, batch, place)).normal(size=(max(artificial), size))[:count]
                    matrix = correlation(embeddings[chosen], embeddings[chosen], rows, reading)
                    spectra.append(np.abs(np.linalg.eigvalsh(matrix)))  # of a symmetric matrix the singular values
                ranks, tolerances = zip(*map(numerical_rank, spectra), strict=True)
                limit = bound(batch, count, size, reading)
                effective = list(map(effective_rank, spectra))
                found.append(Rank(batch, count, reading, limit, list(ranks), effective, max(tolerances)))
    return found
