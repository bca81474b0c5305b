"""Distillation: embeddings learn to be those of a teacher."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool, Float

from simcse_jax.errors import UserError
from simcse_jax.objectives.discarded import check_kept
from simcse_jax.objectives.lazy import AnyArray, Array, jnp
from simcse_jax.objectives.objective import EMBEDDINGS, Embedded, Objective


def embedding_mse(
    embeddings: Float[AnyArray, "V B D"],
    teacher: Float[AnyArray, "V B D"],
    present: Bool[AnyArray, "V B"] | None = None,
) -> Float[Array, " B"]:
    """The mean squared error of an example's embeddings, one loss per example.

        ℓ_i = 1/(V D) Σ_{v,d} ( h_ivd − t_ivd )²

    Reimers & Gurevych 2020 (arXiv:2004.09813), equation in Section 2; `MSELoss` of sentence-transformers is its mean.
    An example that has fewer sentences has the mean over these.

    Args:
      embeddings: (V, B, D) h, all of an example's sentences.
      teacher: (V, B, D) t of the same sentences.
      present: False for sentences that an example lacks; None: it has all.

    Returns:
      (B,) losses.
    """
    where = None if present is None else present[..., None]
    return jnp.mean(jnp.square(embeddings - teacher), axis=(0, 2), where=where)


class EmbeddingMSE(Objective):
    """Every sentence's embedding is that of a teacher."""

    name = "embedding_mse"
    place = 15
    about = "Embeddings as the teacher's: the squared error."
    teacher = EMBEDDINGS
    paired = compares_views = projectable = False  # a teacher's embeddings have no projector

    def check(self, config: Any, active: Sequence[Objective]) -> None:
        """Refuses embeddings that the model does not keep, and two teachers."""
        check_kept(config, "config.objective.embedding_mse.weight", "the trained embedding is the teacher's")
        if config.teacher.second:
            raise UserError(
                f"config.teacher.second={config.teacher.second}: objective.{self.name} compares elements, of which two "
                "teachers have no mean; leave it empty"
            )

    def check_teacher(self, names: tuple[str, str], sizes: tuple[int, int]) -> None:
        """Refuses a teacher whose embeddings have another size."""
        (teacher, model), (theirs, ours) = names, sizes
        if theirs != ours:
            raise UserError(
                f"config.teacher.model={teacher}: its embeddings have {theirs} elements, those of {model} {ours}; "
                f"objective.{self.name} compares them one by one, so take a teacher of {ours}, or "
                "objective.margin_mse, which compares similarities"
            )

    def loss(self, embedded: Embedded) -> Float[Array, ""]:
        """The mean of `embedding_mse` over the batch."""
        assert embedded.teacher is not None  # it needs one
        names = "anchor", "positive", "hard_negatives"
        own, teacher = embedded.stacked(*names), embedded.stacked(*names, of=embedded.teacher)
        losses = embedding_mse(
            own, teacher[..., : own.shape[-1]], embedded.present_in(*names)
        )  # of truncated: the first
        return embedded.mean(losses)


OBJECTIVE = EmbeddingMSE()
