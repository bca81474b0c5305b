"""The objective of contrastive tension (CT): whether two sentences are the same one."""

from collections.abc import Sequence
from typing import Any, ClassVar

from jaxtyping import Bool, Float

from simcse_jax.data.pairing import Pairing
from simcse_jax.errors import UserError
from simcse_jax.field import at_least, at_most, field, reading, weight
from simcse_jax.objectives.lazy import AnyArray, Array, jax, jnp
from simcse_jax.objectives.objective import Embedded, Objective

READINGS = {
    "paper": "negative pairs are the anchor of the group with other sentences, as the paper says",
    "released": "negative pairs are two fresh sentences each, as in the authors' code",
}


def contrastive_tension(
    first: Float[AnyArray, "B D"], second: Float[AnyArray, "B D"], is_positive: Bool[AnyArray, " B"]
) -> Float[Array, " B"]:
    """Binary cross-entropy of dot products, one loss per pair.

        ℓ(x, y) = −log σ(f₁(x) · f₂(y))   if x = y,      −log(1 − σ(f₁(x) · f₂(y)))   otherwise

    Carlsson et al. 2021, "Semantic Re-tuning with Contrastive Tension", Section 3: plain dot products of mean-pooled
    last layers. f₁ and f₂ are two encoders that start from the same weights (`model.dual_encoder`). Our loss is the
    mean over the pairs, as in the released code. sentence-transformers' `ContrastiveTensionLoss` is the sum, 16 times
    ours for a batch of 16: a factor that RMSprop's update hardly depends on.

    Where the negatives come from is a matter of the data, and not of this function. The readings of the field `reading`
    are explained in `data.pairing`:

    - `paper`: a sentence x, and K pairs of it with other sentences.
    - `released`: K pairs of two fresh sentences each, as the authors' code and sentence-transformers have it.

    Args:
      first: (B, D) f₁(x), the local rows.
      second: (B, D) f₂(y) of the same rows.
      is_positive: (B,) whether x = y.

    Returns:
      (B,) losses.
    """
    products = jnp.sum(first * second, axis=1)
    return jax.nn.softplus(jnp.where(is_positive, -products, products))


class ContrastiveTension(Objective):
    """CT: groups of pairs, of which the first one has the same sentence twice."""

    name = "contrastive_tension"
    place = 5
    reads = ("anchor", "positive")
    about = "Dot products of equal and of different sentences, classified (CT)."
    compares_views = False
    contrasts = True
    fields: ClassVar = {
        "weight": weight(),
        "negatives": field(7, "The negative pairs after each positive one: K.", at_least(1), at_most(1000)),
        "reading": reading(READINGS),
    }

    def check(self, config: Any, active: Sequence[Objective]) -> None:
        """Refuses other objectives of pairs, other sources of pairs, and groups that a batch would cut."""
        field = f"objective.{self.name}"
        if others := [other.name for other in active if other is not self and other.embeds]:
            raise UserError(
                f"config.objective.{others[0]}.weight: next to contrastive_tension, most of whose pairs have different "
                "sentences, it must be 0.0"
            )
        for name, value in (("positives", config.data.positives), ("augment.name", config.data.augment.name)):
            if value:
                raise UserError(f"config.data.{name}={value!r}: {field} makes its own pairs; it must be empty")
        group, size = config.objective.contrastive_tension.negatives + 1, config.train.batch_size
        if size % group:
            raise UserError(
                f"config.train.batch_size={size}: must be divisible by {group}, a positive pair and its negatives "
                f"({field}.negatives)"
            )

    def pairing(self, fields: Any) -> Pairing:
        """Groups of K + 1 pairs."""
        return Pairing(fields.negatives, fresh=fields.reading == "released")

    def loss(self, embedded: Embedded, *, negatives: int, **fields: Any) -> Float[Array, ""]:
        """The mean of `contrastive_tension`, without negative pairs of equal texts. `reading` is the data's."""
        # By the place in the global batch, so that a group may lie on several devices.
        is_positive = embedded.own % (negatives + 1) == 0
        losses = contrastive_tension(*embedded.pair, is_positive)
        if embedded.texts is None:
            return embedded.mean(losses)
        kept = is_positive | (embedded.texts["anchor"] != embedded.texts["positive"])
        return embedded.psum(jnp.sum(jnp.where(kept, losses, 0.0))) / embedded.psum(jnp.sum(kept))


OBJECTIVE = ContrastiveTension()
