"""MarginMSE: differences of similarities learn to be those of a teacher."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.candidates import score_candidates
from simcse_jax.objectives.embedded import Embedded


def margin_mse(
    student: Float[AnyArray, "K B"], teacher: Float[AnyArray, "K B"], present: Bool[AnyArray, "K B"] | None = None
) -> Float[Array, " B"]:
    """The squared error of margins, one loss per anchor.

        ℓ_i = 1/H Σ_h ( (s(a_i, p_i) − s(a_i, n_ih)) − (t(a_i, p_i) − t(a_i, n_ih)) )²

    Hofstätter et al. 2020 (arXiv:2010.02666), equation 5; `MarginMSELoss` of sentence-transformers is its mean, with
    s the dot product. An anchor that has fewer hard negatives, but one at least, has the mean over these (`present`).
    The first of the K scores is that of the positive, see `candidates.candidate_scores`.
    """
    ours, theirs = (jnp.subtract(scores[0], scores[1:]) for scores in (student, teacher))
    return jnp.mean(jnp.square(ours - theirs), axis=0, where=None if present is None else present[1:])


class MarginMSE(declarations.MarginMSE):
    """The teacher's margins between an anchor's positive and its own hard negatives."""

    def loss(self, embedded: Embedded, *, similarity: str) -> Float[Array, ""]:
        """The mean of `margin_mse` over the batch."""
        return embedded.mean(margin_mse(*score_candidates(embedded, similarity)))
