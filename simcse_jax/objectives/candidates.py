"""An anchor's own candidates, its positive and hard negatives, as a student and its teacher score them."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import choices
from simcse_jax.objectives.info_nce import normalize
from simcse_jax.objectives.objective import Embedded


def candidate_scores(
    anchors: Float[AnyArray, "B D"], candidates: Float[AnyArray, "K B D"], similarity: str
) -> Float[Array, "K B"]:
    """How similar each anchor is to its own positive and hard negatives.

    Raises:
      ValueError: for a similarity of another name than cosine or dot.
    """
    if similarity not in choices.SIMILARITIES:
        raise ValueError(f"similarity is {similarity!r}; it must be {' or '.join(choices.SIMILARITIES)}")
    if similarity == "cosine":
        anchors, candidates = normalize(anchors), normalize(candidates)
    return jnp.sum(anchors * candidates, axis=-1)


def taught_scores(
    embedded: Embedded, similarity: str
) -> tuple[Float[Array, "K B"], Float[Array, "K B"], Bool[Array, "K B"] | None]:
    """The student's and the teacher's scores of a batch, the positive's first, and which candidates there are.

    Returns:
      (K, B) the student's, (K, B) the teacher's, and (K, B) False for hard negatives that an anchor lacks, or None
      where each has all.
    """
    assert embedded.teacher is not None  # the objective's `Needs` asks for it
    anchor, positive, hard_negatives = embedded.positive
    own = positive, *hard_negatives

    def of(rows: Any) -> Float[Array, "K B"]:
        return candidate_scores(rows[anchor], rows[jnp.array(own)], similarity)

    return of(embedded.views), of(embedded.teacher), embedded.present_in(own)
