"""Why the contrastive objective flattens the spectrum: SimCSE's Section 5 (docs/background/spectrum.md).

W is the (m, D) matrix of the normalized embeddings of m sentences, h_i its rows, not centred. The eigenvalues of W Wᵀ,
the squares of W's singular values, add up to m.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64

from simcse_jax.evaluation.analysis.isotropy import normalize

Rows = Float[np.ndarray, "N D"]
Positives = tuple[Float[np.ndarray, "P D"], Float[np.ndarray, "P D"]]  # the two sides of positive pairs
TERMS = ("alignment_term", "uniformity_term", "uniformity_bound")  # with a temperature
NUMBERS = (*TERMS, "top_eigenvalue", "effective_rank", "singular_value_entropy")


class Spectrum(NamedTuple):
    """The spectrum of the embeddings of N sentences."""

    numbers: Mapping[str, float]  # by name, of `NUMBERS`
    singular_values: Float[np.ndarray, " min(N,D)"]  # of W, falling from 1: divided by the largest

    def rounded(self) -> dict[str, float]:
        """The numbers, for JSON."""
        return {name: round(number, 6) for name, number in self.numbers.items()}


def measure(embeddings: Rows, positives: Positives | None = None, temperature: float | None = None) -> Spectrum:
    """All of it: with the objective's temperature the terms of equation 7, and with positive pairs that of equation 6.

    Embeddings are of any length.
    """
    values = singular_values(embeddings)
    numbers = {
        "top_eigenvalue": float(values[0] ** 2),
        "effective_rank": effective_rank(values),
        "singular_value_entropy": entropy(values),
    }
    if temperature is not None:
        if positives is not None:
            numbers["alignment_term"] = alignment_term(*positives, temperature)
        numbers["uniformity_term"] = uniformity_term(embeddings, temperature)
        numbers["uniformity_bound"] = uniformity_bound(embeddings, temperature)
    return Spectrum(numbers, values / max(values[0], 1e-12))


def mean_of(runs: Sequence[Mapping[int, Spectrum]]) -> dict[int, Spectrum]:
    """The spectra of runs that differ in their seed, by the steps that all of them measured, with their means."""
    means = {}
    for step in sorted(set.intersection(*map(set, runs))):
        at_step = [spectra[step] for spectra in runs]
        names = [name for name in at_step[0].numbers if all(name in spectrum.numbers for spectrum in at_step)]
        numbers = {name: float(np.mean([spectrum.numbers[name] for spectrum in at_step])) for name in names}
        means[step] = Spectrum(numbers, np.mean([spectrum.singular_values for spectrum in at_step], axis=0))
    return means


def alignment_term(first: Rows, second: Rows, temperature: float) -> float:
    """−(1/τ) E f(x)ᵀf(x⁺) over positive pairs: SimCSE, the first term of equation 6; −1/τ at best."""
    return float(-np.mean(np.sum(normalize(first) * normalize(second), axis=1)) / temperature)


def uniformity_term(embeddings: Rows, temperature: float, block: int = 1024) -> float:
    """(1/m) Σ_i log( (1/m) Σ_j exp(h_iᵀh_j / τ) ), j = i included: SimCSE, the left side of equation 7.

    From 1/τ − log m, where all others are far away, to 1/τ, where all are the same. `block` rows are compared with all
    others at a time.
    """
    rows, total = normalize(embeddings), 0.0
    for start in range(0, len(rows), block):
        logits = rows[start : start + block] @ rows.T / temperature
        largest = logits.max(axis=1, keepdims=True)
        total += np.sum(largest[:, 0] + np.log(np.mean(np.exp(logits - largest), axis=1)))
    return float(total / len(rows))


def uniformity_bound(embeddings: Rows, temperature: float) -> float:
    """Sum(W Wᵀ) / (τ m²) = ‖Σ_i h_i‖² / (τ m²): SimCSE, the right side of equation 7, the mean similarity over τ."""
    return float(np.sum(normalize(embeddings).mean(axis=0) ** 2) / temperature)


def singular_values(embeddings: Rows) -> Float64[np.ndarray, " min(N,D)"]:
    """The singular values of W, the largest first; their squares are the eigenvalues of W Wᵀ and add up to N."""
    return np.linalg.svd(normalize(embeddings), compute_uv=False)


def entropy(singular_values: Float64[np.ndarray, " K"]) -> float:
    """−Σ_k p_k ln p_k, p_k = σ_k / Σ_j σ_j; 0 where one of them has all, ln K where all are equal."""
    shares = singular_values[singular_values > 0] / max(singular_values.sum(), 1e-300)
    return float(-np.sum(shares * np.log(shares))) + 0.0  # no −0.0


def effective_rank(singular_values: Float64[np.ndarray, " K"]) -> float:
    """The exponential of their entropy (Roy & Vetterli 2007, definition 1): n where n are equal and the others zero."""
    return float(np.exp(entropy(singular_values))) if np.any(singular_values > 0) else 0.0
