"""An anchor's own candidates, its positive and hard negatives, as a student and its teacher score them."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import comparable


def candidate_scores(
    anchors: Float[AnyArray, "B D"], candidates: Float[AnyArray, "K B D"], similarity: str
) -> Float[Array, "K B"]:
    """How similar each anchor is to its own positive and hard negatives."""
    anchors, candidates = comparable(similarity, anchors, candidates)
    return jnp.sum(anchors * candidates, axis=-1)


def score_candidates(
    embedded: Embedded, similarity: str
) -> tuple[Float[Array, "K B"], Float[Array, "K B"], Bool[Array, "K B"] | None]:
    """The student's and the teacher's scores of a batch, the positive's first, and which candidates there are.

    The teacher's come from its embeddings, or from the data.

    Returns:
      (K, B) the student's, (K, B) the teacher's, and (K, B) False for hard negatives that an anchor lacks, or None
      where each has all.
    """
    names = "positive", "hard_negatives"
    student = candidate_scores(embedded["anchor"], embedded.stacked(*names), similarity)
    if embedded.teacher is not None:
        of_teacher = embedded.stacked(*names, of=embedded.teacher)
        teacher = candidate_scores(embedded.teacher["anchor"], of_teacher, similarity)
    else:
        assert embedded.score is not None  # the data have the scores where there is no model
        teacher = jnp.transpose(embedded.score)
    return student, teacher, embedded.present_in(*names)
