"""Distillation: embeddings learn to be those of a teacher."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded


def embedding_mse(
    embeddings: Float[AnyArray, "V B D"],
    teacher: Float[AnyArray, "V B D"],
    present: Bool[AnyArray, "V B"] | None = None,
) -> Float[Array, " B"]:
    """The mean squared error of an example's embeddings, one loss per example.

        ℓ_i = 1/(V D) Σ_{v,d} ( h_ivd − t_ivd )²

    Reimers & Gurevych 2020 (arXiv:2004.09813), equation in Section 2; `MSELoss` of sentence-transformers is its mean.
    An example that has fewer of the V sentences (`present`) has the mean over these.
    """
    where = None if present is None else present[..., None]
    return jnp.mean(jnp.square(embeddings - teacher), axis=(0, 2), where=where)


class EmbeddingMSE(declarations.EmbeddingMSE):
    """Every sentence's embedding is that of a teacher."""

    def loss(self, embedded: Embedded) -> Float[Array, ""]:
        """The mean of `embedding_mse` over the batch."""
        assert embedded.teacher is not None  # it needs one
        names = "anchor", "positive", "hard_negatives"
        student, teacher = embedded.stacked(*names), embedded.stacked(*names, of=embedded.teacher)
        losses = embedding_mse(
            student, teacher[..., : student.shape[-1]], embedded.present_in(*names)
        )  # of truncated: the first
        return embedded.mean(losses)
