"""The triplet loss: a positive is nearer than a hard negative, by a margin."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.candidates import candidate_scores
from simcse_jax.objectives.embedded import Embedded


def triplet(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "B D"],
    hard_negatives: Float[AnyArray, "H B D"],
    *,
    margin: Float[AnyArray, ""] | float,
    distance: str = "euclidean",
) -> Float[Array, "H B"]:
    """How much too near each hard negative of an anchor is.

        ℓ_i = max(0, d(a_i, p_i) − d(a_i, n_i) + m)

    with d = ‖x − y‖ or 1 − cos(x, y): SBERT (Reimers & Gurevych 2019), Section 3, with m = 1, of embeddings of any
    length; `TripletLoss` of sentence-transformers is its mean, with m = 5 by default.
    """
    others = jnp.concatenate([positives[None], hard_negatives])
    if distance == "cosine":
        distances = 1 - candidate_scores(anchors, others, "cosine")
    else:  # the lower limit keeps the gradient between equal embeddings finite
        distances = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(anchors - others), axis=-1), 1e-16))
    return jax.nn.relu(distances[0] - distances[1:] + margin)


class Triplet(declarations.Triplet):
    """Distances between an anchor's positive and its own hard negatives."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `triplet` over the triplets that the batch has."""
        losses = triplet(*embedded.pair, embedded["hard_negatives"], **fields)
        return embedded.mean_of_present(losses, "hard_negatives")
