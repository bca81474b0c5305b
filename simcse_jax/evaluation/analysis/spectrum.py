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
TERMS = (  # with a temperature
    *("alignment_term", "uniformity_term", "dropout_alignment_term", "dropout_uniformity_term"),
    *("uniformity_with_self", "uniformity_floor", "uniformity_bound"),
)
BLOCK = 1024  # rows that are compared with all others at a time
NUMBERS = (*TERMS, "top_eigenvalue", "effective_rank", "singular_value_entropy")


class Spectrum(NamedTuple):
    """The spectrum of the embeddings of N sentences."""

    numbers: Mapping[str, float]  # by name, of `NUMBERS`
    singular_values: Float[np.ndarray, " min(N,D)"]  # of W, falling from 1: divided by the largest

    def rounded(self) -> dict[str, float]:
        """The numbers, for JSON."""
        return {name: round(number, 6) for name, number in self.numbers.items()}


def measure(
    embeddings: Rows,
    positives: Positives | None = None,
    temperature: float | None = None,
    under_dropout: tuple[Rows, Rows] | None = None,
) -> Spectrum:
    """All of it: with the objective's temperature both sides of equation 7, and the terms of equation 6.

    Args:
      embeddings: of N sentences, of any length.
      positives: sentences of the same meaning.
      temperature: τ; None: the objective has none.
      under_dropout: each sentence under two dropout masks, as an unsupervised run trains.
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
        if under_dropout is not None:
            first, second = under_dropout
            numbers["dropout_alignment_term"] = alignment_term(first, second, temperature)
            numbers["dropout_uniformity_term"] = uniformity_term(first, temperature, second)
        numbers["uniformity_with_self"] = uniformity_with_self(embeddings, temperature)
        numbers["uniformity_floor"] = uniformity_floor(len(embeddings), temperature)
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


def uniformity_term(embeddings: Rows, temperature: float, others: Rows | None = None) -> float:
    """E_i log E_{j≠i} exp(h_iᵀh_j / τ): SimCSE, the second term of equation 6; its x⁻ are the other sentences.

    1/τ where all are the same, 0 where they are at right angles. `others` are the embeddings h_j, of the
    same sentences, where they differ from h_i: under other masks. Then this and the `alignment_term` of both add up to
    the mean of InfoNCE without the positive in its sum, less log(m − 1).
    """
    sums = _log_sums(embeddings, embeddings if others is None else others, temperature, with_self=False)
    return float(np.mean(sums) - np.log(len(embeddings) - 1))


def uniformity_with_self(embeddings: Rows, temperature: float) -> float:
    """(1/m) Σ_i log( (1/m) Σ_j exp(h_iᵀh_j / τ) ), j = i included: SimCSE, the left side of equation 7.

    From `uniformity_floor`, where all others are far away, to 1/τ, where all are the same.
    """
    return float(np.mean(_log_sums(embeddings, embeddings, temperature, with_self=True)) - np.log(len(embeddings)))


def uniformity_floor(count: int, temperature: float) -> float:
    """1/τ − log m: what the summands j = i alone give `uniformity_with_self` of m sentences."""
    return float(1 / temperature - np.log(count))


def uniformity_bound(embeddings: Rows, temperature: float) -> float:
    """Sum(W Wᵀ) / (τ m²) = ‖Σ_i h_i‖² / (τ m²): SimCSE, the right side of equation 7, the mean similarity over τ."""
    return float(np.sum(normalize(embeddings).mean(axis=0) ** 2) / temperature)


def _log_sums(embeddings: Rows, others: Rows, temperature: float, *, with_self: bool) -> Float64[np.ndarray, " N"]:
    """log Σ_j exp(h_iᵀh_j / τ) of each i."""
    rows, others = normalize(embeddings), normalize(others)
    sums = []
    for start in range(0, len(rows), BLOCK):
        logits = rows[start : start + BLOCK] @ others.T / temperature
        if not with_self:
            places = np.arange(len(logits))
            logits[places, start + places] = -np.inf
        largest = logits.max(axis=1, keepdims=True)
        sums.append(largest[:, 0] + np.log(np.sum(np.exp(logits - largest), axis=1)))
    return np.concatenate(sums)


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
