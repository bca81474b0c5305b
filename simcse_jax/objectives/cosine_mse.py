"""The squared error of cosines as predictions of scores, the regression objective of SBERT."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import cosine


def cosine_mse(
    first: Float[AnyArray, "B D"], second: Float[AnyArray, "B D"], scores: Float[AnyArray, " B"]
) -> Float[Array, " B"]:
    """The squared error of the cosine, one loss per pair.

        ℓ_i = ( cos(u_i, v_i) − y_i )²

    Reimers & Gurevych 2019 (arXiv:1908.10084), Section 3, "Regression Objective Function";
    `CosineSimilarityLoss` of sentence-transformers is its mean. u is `first`, v `second`, y the score, from 0 to 1.
    """
    return jnp.square(cosine(first, second) - scores)


class CosineMSE(declarations.CosineMSE):
    """SBERT's regression."""

    def loss(self, embedded: Embedded) -> Float[Array, ""]:
        """The mean of `cosine_mse` over the batch."""
        assert embedded.score is not None  # it declares that it needs them
        return embedded.mean(cosine_mse(*embedded.pair, embedded.score))
