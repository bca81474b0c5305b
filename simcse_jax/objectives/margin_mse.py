"""MarginMSE: differences of similarities learn to be those of a teacher."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import choices
from simcse_jax.objectives.info_nce import normalize
from simcse_jax.objectives.objective import Embedded, Needs, Objective


def margins(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "B D"],
    negatives: Float[AnyArray, "H B D"],
    similarity: str,
) -> Float[Array, "H B"]:
    """How much more similar each anchor is to its positive than to its own hard negatives.

    Raises:
      ValueError: for a similarity of another name than cosine or dot.
    """
    if similarity not in choices.SIMILARITIES:
        raise ValueError(f"similarity is {similarity!r}; it must be {' or '.join(choices.SIMILARITIES)}")
    if similarity == "cosine":
        anchors, positives, negatives = normalize(anchors), normalize(positives), normalize(negatives)
    return jnp.sum(anchors * positives, axis=-1) - jnp.sum(anchors * negatives, axis=-1)


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


def _term(embedded: Embedded, *, similarity: str) -> Float[Array, ""]:
    assert embedded.teacher is not None  # `Needs` asks for it
    anchor, positive, hard_negatives = embedded.positive

    def of(rows: Any) -> Float[Array, "H B"]:
        return margins(rows[anchor], rows[positive], rows[jnp.array(hard_negatives)], similarity)

    return embedded.mean(margin_mse(of(embedded.views), of(embedded.teacher), embedded.present_in(hard_negatives)))


OBJECTIVE = Objective(_term, needs=Needs(teacher=True))
