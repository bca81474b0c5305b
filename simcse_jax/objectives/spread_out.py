"""The spread-out regularizer: different sentences are near orthogonal, as random directions are."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded, Psum
from simcse_jax.objectives.similarity import normalize


def second_moment(embeddings: Float[AnyArray, "B D"], psum: Psum) -> Float[Array, ""]:
    """The mean squared cosine of different sentences of the global batch; 0 for a single one.

        ℓ = 1 / (N (N − 1)) Σ_i Σ_{j≠i} cos(x_i, x_j)²

    The spread-out regularizer of EmbeddingGemma's report (Vera et al. 2025): the second term of global orthogonal
    regularization (Zhang et al. 2017) without its floor of 1 / D, which random directions have. With j = i the double
    sum is ‖Σ_i x_i x_iᵀ‖² of unit vectors x, so rows stay on their devices and D² numbers are summed.
    """
    rows = normalize(embeddings)
    count = psum(len(rows))
    products = psum(rows.T @ rows)
    own = psum(jnp.sum(jnp.square(jnp.sum(rows * rows, axis=1))))  # N, but for vectors of zeros
    return (jnp.sum(jnp.square(products)) - own) / jnp.maximum(count * (count - 1), 1)


class SpreadOut(declarations.SpreadOut):
    """Anchors apart from anchors, positives from positives."""

    def loss(self, embedded: Embedded) -> Float[Array, ""]:
        """The sum of `second_moment` of the anchors and of the positives."""
        anchors, positives = embedded.pair
        return second_moment(anchors, embedded.psum) + second_moment(positives, embedded.psum)
