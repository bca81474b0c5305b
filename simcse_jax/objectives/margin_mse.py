"""MarginMSE: differences of similarities learn to be those of a teacher."""

from typing import ClassVar

from jaxtyping import Bool, Float

from simcse_jax.field import either, field, weight
from simcse_jax.objectives.candidates import taught_scores
from simcse_jax.objectives.info_nce import MEASURES
from simcse_jax.objectives.lazy import AnyArray, Array, jnp
from simcse_jax.objectives.objective import Embedded, Objective


def margins(scores: Float[AnyArray, "K B"]) -> Float[Array, "H B"]:
    """How much more similar each anchor is to its positive than to its own hard negatives.

    Args:
      scores: of the positive, then of the hard negatives, see `candidates.candidate_scores`.
    """
    return jnp.subtract(scores[0], scores[1:])


def margin_mse(
    student: Float[AnyArray, "H B"],
    teacher: Float[AnyArray, "H B"],
    present: Bool[AnyArray, "H B"] | None = None,
) -> Float[Array, " B"]:
    """The squared error of margins, one loss per anchor.

        ℓ_i = 1/H Σ_h ( (s(a_i, p_i) − s(a_i, n_ih)) − (t(a_i, p_i) − t(a_i, n_ih)) )²

    Hofstätter et al. 2020 (arXiv:2010.02666), equation 5; `MarginMSELoss` of sentence-transformers is its mean, with
    s the dot product. An anchor that has fewer hard negatives has the mean over these.

    Args:
      student: (H, B) margins, see `margins`.
      teacher: (H, B) of the same sentences.
      present: False for hard negatives that an anchor lacks; None: it has all. Each has one at least.

    Returns:
      (B,) losses.
    """
    return jnp.mean(jnp.square(student - teacher), axis=0, where=present)


class MarginMSE(Objective):
    """The teacher's margins between an anchor's positive and its own hard negatives."""

    name = "margin_mse"
    place = 16
    about = "Positives against hard negatives as the teacher has them: the squared error (MarginMSE)."
    teacher = hard_negatives = True
    fields: ClassVar = {
        "weight": weight(),
        "similarity": field("dot", "The similarity of two embeddings, in both.", either(MEASURES)),
    }

    def loss(self, embedded: Embedded, *, similarity: str) -> Float[Array, ""]:
        """The mean of `margin_mse` over the batch."""
        student, teacher, present = taught_scores(embedded, similarity)
        return embedded.mean(margin_mse(margins(student), margins(teacher), None if present is None else present[1:]))


OBJECTIVE = MarginMSE()
