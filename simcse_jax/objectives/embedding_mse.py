"""Distillation: embeddings learn to be those of a teacher."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives.objective import Embedded, Needs, Objective

NAME = "embedding_mse"  # in `config.objective`


def embedding_mse(embeddings: Float[AnyArray, "V B D"], teacher: Float[AnyArray, "V B D"]) -> Float[Array, " B"]:
    """The mean squared error of an example's embeddings, one loss per example.

        ℓ_i = 1/(V D) Σ_{v,d} ( h_ivd − t_ivd )²

    Reimers & Gurevych 2020 (arXiv:2004.09813), equation in Section 2; `MSELoss` of sentence-transformers is its mean.

    Args:
      embeddings: (V, B, D) h, all of an example's sentences.
      teacher: (V, B, D) t of the same sentences.

    Returns:
      (B,) losses.
    """
    return jnp.mean(jnp.square(embeddings - teacher), axis=(0, 2))


def _term(embedded: Embedded) -> Float[Array, ""]:
    assert embedded.teacher is not None  # `Needs` asks for it
    anchor, positive, hard_negatives = embedded.positive
    members = jnp.array([anchor, positive, *hard_negatives])
    size = embedded.views.shape[-1]  # of truncated embeddings: the teacher's first elements
    return embedded.mean(embedding_mse(embedded.views[members], embedded.teacher[members][..., :size]))


OBJECTIVE = Objective(_term, needs=Needs(teacher=True))
