"""Distillation of scores: which of an example's own candidates is the nearest, as a teacher has it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.candidates import score_candidates
from simcse_jax.objectives.embedded import Embedded


def distill_kl(
    student: Float[AnyArray, "K B"],
    teacher: Float[AnyArray, "K B"],
    *,
    temperature: Float[AnyArray, ""] | float,
    teacher_temperature: Float[AnyArray, ""] | float | None = None,
    present: Bool[AnyArray, "K B"] | None = None,
) -> Float[Array, " B"]:
    """The divergence of the student's distribution over its candidates from the teacher's, one loss per anchor.

        ℓ_i = τ² Σ_k P_ik log(P_ik / Q_ik),      P_i = softmax(t_i / τ'),     Q_i = softmax(s_i / τ)

    As Lin et al. 2020 (arXiv:2010.11386) distill a ranking, over an anchor's own positive and hard negatives;
    `DistillKLDivLoss` of sentence-transformers is its mean, with s the dot product. τ² keeps the size of the gradient.
    τ' is for scores of another scale, such as a cross-encoder's; None: τ. Only candidates that are `present` count.
    """
    if present is not None:
        student, teacher = (jnp.where(present, scores, -jnp.inf) for scores in (student, teacher))
    of_teacher = temperature if teacher_temperature is None else teacher_temperature
    log_p, log_q = (jax.nn.log_softmax(x / by, axis=0) for x, by in ((teacher, of_teacher), (student, temperature)))
    differences = log_p - log_q if present is None else jnp.where(present, log_p - log_q, 0.0)
    return jnp.square(temperature) * jnp.sum(jnp.exp(log_p) * differences, axis=0)


class DistillKL(declarations.DistillKL):
    """The teacher's ranking of an anchor's own candidates."""

    def loss(
        self,
        embedded: Embedded,
        *,
        temperature: Float[AnyArray, ""],
        teacher_temperature: Float[AnyArray, ""],
        similarity: str,
    ) -> Float[Array, ""]:
        """The mean of `distill_kl` over the batch."""
        student, teacher, present = score_candidates(embedded, similarity)
        target_temperature = jnp.where(teacher_temperature > 0, teacher_temperature, temperature)
        losses = distill_kl(
            student, teacher, temperature=temperature, teacher_temperature=target_temperature, present=present
        )
        return embedded.mean(losses)
