"""Views of a sentence that repel each other, one half of SCD's objective."""

from typing import Any

from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import cosine


def self_contrastive(
    first: Float[AnyArray, "B D"], second: Float[AnyArray, "B D"], *, temperature: Float[AnyArray, ""] | float
) -> Float[Array, " B"]:
    """The similarity of the two views of a sentence, one loss per sentence.

        ℓ_i = cos(h_i¹, h_i²) / τ

    Klein & Nabi 2022 (SCD, arXiv:2203.07847), the self-contrastive term. The sign is plus, so the views of a sentence
    repel each other: alone it would only make embeddings noisy, and the decorrelation next to it (`barlow_twins`, on
    projected embeddings) pulls them together again.
    """
    return cosine(first, second) / temperature


class SelfContrastive(declarations.SelfContrastive):
    """SCD's repulsion of a sentence's views."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `self_contrastive` over the batch."""
        return embedded.mean(self_contrastive(*embedded.pair, **fields))
