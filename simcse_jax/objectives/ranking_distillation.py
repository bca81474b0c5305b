"""A sentence ranks the others of the batch as a teacher does: the second of RankCSE's two terms."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import map_rows, normalize

ADDED = 1e-7  # as released, to a sum in which the most similar sentence counts 1


def ranking_distillation(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "N D"],
    teacher_anchors: Float[AnyArray, "B E"],
    teacher_positives: Float[AnyArray, "N E"],
    positions: Int[AnyArray, " B"],
    *,
    temperature: Float[AnyArray, ""] | float,
    teacher_temperature: Float[AnyArray, ""] | float,
    method: str = "listmle",
    reading: str = "paper",
) -> Float[Array, " B"]:
    """How far a sentence's list of similarities is from the teacher's, one loss per sentence.

        listnet    ℓ_i = −Σ_j softmax_j(t_ij / τ_T) · log softmax_j(s_ij / τ)
        listmle    ℓ_i = −Σ_k log  e^{s_iπ(k) / τ} / Σ_{m ≥ k} e^{s_iπ(m) / τ}

    with s_ij = cos(h_i, h_j⁺), t_ij the teacher's, j over the N examples of the global batch, and π the order in which
    t_i falls: the ranking distillation of RankCSE (Liu et al. 2023, arXiv:2305.16726, Section 3.3), after ListNet (Cao
    et al. 2007) and ListMLE (Xia et al. 2008). Of equal t_ij the first row comes first.

    Its public code, perceptiveshawty/RankCSE, leaves j = i out of listnet's lists. In listmle it adds 1e-7 to each sum,
    as a share of the list's largest e^{s / τ}. That floor is felt where similarities are further apart than 16 τ.

    `positions` are the rows of `positives` that belong to the anchors. τ_T is of listnet alone.
    """
    columns, teacher_columns = normalize(positives), normalize(teacher_positives)

    def losses(
        anchors: Float[AnyArray, "R D"], teacher: Float[AnyArray, "R E"], positions: Int[AnyArray, " R"]
    ) -> Float[Array, " R"]:
        scores, taught = anchors @ columns.T / temperature, teacher @ teacher_columns.T
        if method == "listmle":
            return listmle(scores, taught, ADDED if reading == "released" else 0.0)
        kept = (positions[:, None] != jnp.arange(len(columns))) | (reading == "paper")
        return listnet(scores, taught / teacher_temperature, kept)

    return map_rows(losses, 2 * len(columns), normalize(anchors), normalize(teacher_anchors), positions)


def listnet(scores: Float[AnyArray, "R N"], teacher: Float[AnyArray, "R N"], kept: AnyArray) -> Float[Array, " R"]:
    """The cross-entropy of softmax(scores) with softmax(teacher), over the candidates that are kept, (R, N)."""
    log_p, log_q = (jax.nn.log_softmax(jnp.where(kept, logits, -jnp.inf), axis=1) for logits in (teacher, scores))
    return -jnp.sum(jnp.exp(log_p) * jnp.where(kept, log_q, 0.0), axis=1)


def listmle(scores: Float[AnyArray, "R N"], teacher: Float[AnyArray, "R N"], added: float) -> Float[Array, " R"]:
    """−log of the probability that N draws without replacement, by softmax(scores), come in the teacher's order."""
    order = jnp.argsort(-teacher, axis=1, stable=True)
    ordered = jnp.take_along_axis(scores, order, axis=1)
    remaining = jax.lax.cumlogsumexp(ordered, axis=1, reverse=True)
    if added:
        remaining = jnp.logaddexp(remaining, jnp.max(ordered, axis=1, keepdims=True) + jnp.log(added))
    return jnp.sum(remaining - ordered, axis=1)


class RankingDistillation(declarations.RankingDistillation):
    """RankCSE's distillation of a teacher's lists; of two teachers, of the mean of their lists."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `ranking_distillation` over the batch."""
        teacher = embedded.teacher
        assert teacher is not None  # it needs one
        positives, teacher_positives = (
            embedded.gather(embedded.stacked("positive", of=of))[0] for of in (None, teacher)
        )
        losses = ranking_distillation(
            embedded["anchor"], positives, teacher["anchor"], teacher_positives, embedded.own, **fields
        )
        return embedded.mean(losses)
