"""Soft negatives are less similar than the positive, but by no more than a bound: SNCSE's bidirectional margin loss."""

from collections.abc import Sequence
from typing import Any, ClassVar

from jaxtyping import Float

from simcse_jax.errors import UserError
from simcse_jax.field import at_least, number, weight
from simcse_jax.objectives.candidates import candidate_scores
from simcse_jax.objectives.lazy import AnyArray, Array, jax, jnp
from simcse_jax.objectives.objective import Columns, Embedded, Objective
from simcse_jax.objectives.similarity import cosine


def bidirectional_margin(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "B D"],
    soft_negatives: Float[AnyArray, "H B D"],
    *,
    lower: Float[AnyArray, ""] | float,
    upper: Float[AnyArray, ""] | float,
) -> Float[Array, "H B"]:
    """How far the margin of each soft negative is outside its bounds.

        ℓ_i = max(0, Δ_i + α) + max(0, −Δ_i − β),      Δ_i = cos(h_i, h_i⁻) − cos(h_i, h_i⁺)

    The positive is more similar than a soft negative by α to β: SNCSE (Wang et al. 2022, arXiv:2201.05979). A soft
    negative is a sentence with nearly the same words and another meaning, such as the anchor's negation; hence a bound
    in both directions, where a hard negative has none.

    Args:
      anchors, positives: (B, D) h and h⁺, the local rows.
      soft_negatives: (H, B, D) h⁻, H of each row.
      lower, upper: α and β.
    """
    difference = candidate_scores(anchors, soft_negatives, "cosine") - cosine(anchors, positives)
    return jax.nn.relu(difference + lower) + jax.nn.relu(-difference - upper)


class BidirectionalMargin(Objective):
    """SNCSE's loss of soft negatives, which are the data's hard negatives."""

    name = "bidirectional_margin"
    place = 8
    about = "Hard negatives as soft ones: less similar than the positive, within bounds (SNCSE)."
    fields: ClassVar = {
        "weight": weight(),
        "lower": number(0.1, "The least that the positive's cosine is to be larger: α.", at_least(0)),
        "upper": number(0.3, "The most that the positive's cosine is to be larger: β.", at_least(0)),
    }

    def check(self, config: Any, active: Sequence[Objective]) -> None:
        """Refuses bounds between which there is nothing."""
        fields = config.objective.bidirectional_margin
        if fields.lower > fields.upper:
            raise UserError(
                f"config.objective.{self.name}.lower={fields.lower}: is above objective.{self.name}.upper="
                f"{fields.upper}, so no margin would be between them; set a lower one"
            )

    def check_columns(self, config: Any, columns: Columns) -> None:
        """Refuses data in which no row has a soft negative."""
        if columns.number < 3:
            raise UserError(
                f"config.objective.{self.name}.weight: needs soft negatives, in the column of hard ones, but "
                f"{columns.data} has no such column; set data.columns.negative (data.columns.positive may be the "
                "anchors' column)"
            )

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `bidirectional_margin` over the soft negatives that the batch has; 0 if it has none."""
        losses = bidirectional_margin(*embedded.pair, embedded["hard_negatives"], **fields)
        present = embedded.present_in("hard_negatives")
        there = jnp.ones_like(losses, bool) if present is None else present
        total, count = (embedded.psum(jnp.sum(part)) for part in (jnp.where(there, losses, 0.0), there))
        return total / jnp.maximum(count, 1)


OBJECTIVE = BidirectionalMargin()
