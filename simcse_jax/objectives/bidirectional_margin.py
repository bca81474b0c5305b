"""Soft negatives are less similar than the positive, but by no more than a bound: SNCSE's bidirectional margin loss."""

from typing import Any

import jax
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.candidates import candidate_scores
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import cosine


def bidirectional_margin(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "B D"],
    soft_negatives: Float[AnyArray, "H B D"],
    *,
    lower: Float[AnyArray, ""] | float,
    upper: Float[AnyArray, ""] | float,
) -> Float[Array, "H B"]:
    """How far the margin of each soft negative is outside its bounds.

        ℓ_i = max(0, Δ_i + α) + max(0, −Δ_i − β),      Δ_i = cos(h_i, h_i⁻) − cos(h_i, h_i⁺)

    The positive is more similar than a soft negative by α to β: SNCSE (Wang et al. 2022, arXiv:2201.05979). A soft
    negative is a sentence with nearly the same words and another meaning, such as the anchor's negation; hence a bound
    in both directions, where a hard negative has none. α is `lower`, β `upper`.
    """
    difference = candidate_scores(anchors, soft_negatives, "cosine") - cosine(anchors, positives)
    return jax.nn.relu(difference + lower) + jax.nn.relu(-difference - upper)


class BidirectionalMargin(declarations.BidirectionalMargin):
    """SNCSE's loss of soft negatives, which are the data's hard negatives."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `bidirectional_margin` over the soft negatives that the batch has; 0 if it has none."""
        losses = bidirectional_margin(*embedded.pair, embedded["hard_negatives"], **fields)
        return embedded.mean_of_present(losses, "hard_negatives")
