"""InfoNCE with other dropout masks for negative than for positive pairs: the off-dropout objective of SimCSE++."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.similarity import cosine, map_rows, normalize
from simcse_jax.objectives.views import Plan, Views


def off_dropout(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "B D"],
    clean_anchors: Float[AnyArray, "B D"],
    clean_positives: Float[AnyArray, "N D"],
    clean_hard_negatives: Float[AnyArray, "*H N D"] | None,
    positions: Int[AnyArray, " B"],
    *,
    temperature: Float[AnyArray, ""] | float,
    m: Float[AnyArray, ""] | float,
    reading: str = "paper",
    candidates: Candidates | None = None,
) -> Float[Array, " B"]:
    """Off-dropout InfoNCE, one loss per anchor.

        ℓ_i = −log  e^{s(z_i¹, z_i²)} / ( e^{s(z_i¹, z_i²)} + m ( Σ_{j≠i} e^{s(z_i, z_j⁺)} + Σ_j e^{s(z_i, z_j⁻)} ) )

    with s = cosine / τ: SimCSE++ equation 3. z¹ and z² are encoded with dropout, z without. The equation has one
    sentence per example (z_j⁺ = z_j) and no hard negatives z⁻; we add them as SimCSE's equation 5 does.

    The paper and its released code differ in m (field `reading`) and agree at m = 1. Where the positive pair is clearly
    the most similar one, the paper's does little more than scale the gradient, which Adam ignores. The released one
    multiplies s(z_i¹, z_i²) above and below the line (`pos_ratio` in simcse/models_re.py and models_re_vicreg.py).
    Below 1 it asks for positives that are more similar by the factor 1 / m. The authors' script for off-dropout alone
    sets 0.9, as the paper does; `configs/simcse_plus_plus.py` has what the one for SimCSE++ does.

    With m = 1 and the same views for both kinds of pairs this is `info_nce`. The noise study of Table 1 has m = 1 and
    other views: noisy or mean ones for one kind of pairs, ordinary ones for the other.

    Args:
      anchors, positives: (B, D) z¹ and z² of the positive pairs, the local rows.
      clean_anchors: (B, D) z of the negative pairs, the local rows.
      clean_positives: (N, D) z⁺ of the global batch; row positions[i] is in no negative pair of anchor i.
      clean_hard_negatives: (N, D) z⁻ of the global batch, (H, N, D) for H kinds of them, or None.
      positions: (B,) the row of `clean_positives` that belongs to each anchor.
      m, reading: see above.
      candidates: which clean positives and hard negatives are left out of the sums; None keeps all.
    """
    readings: dict[str, Any] = {"paper": (1.0, jnp.log(m)), "released": (m, 0.0)}
    factor, shift = readings[reading]  # of the positive and the negative logits
    positive = factor * cosine(anchors, positives) / temperature
    all_positives = normalize(clean_positives)
    if clean_hard_negatives is not None:
        hard_negatives = clean_hard_negatives.reshape(-1, clean_hard_negatives.shape[-1])  # kind after kind
        all_positives = jnp.concatenate([all_positives, normalize(hard_negatives)])

    def losses(
        clean_anchors: Float[AnyArray, "R D"],
        positive: Float[AnyArray, " R"],
        positions: Int[AnyArray, " R"],
        pairs: Int[AnyArray, "R 2"] | None,
    ) -> Float[Array, " R"]:
        logits = clean_anchors @ all_positives.T / temperature + shift
        if candidates is not None:
            logits = candidates.kept(logits, positions, pairs)
        # The positive pair takes the place of the anchor's own row, so the sum has each of its terms once.
        logits = jnp.where(positions[:, None] == jnp.arange(len(all_positives)), positive[:, None], logits)
        return jax.nn.logsumexp(logits, axis=1) - positive

    pairs = candidates and candidates.pairs
    return map_rows(losses, len(all_positives), normalize(clean_anchors), positive, positions, pairs)


class OffDropout(declarations.OffDropout):
    """SimCSE++'s contrast: pairs with dropout, and negative pairs with masks of their own, or none."""

    def views(self, plan: Plan) -> Views:
        """The views of the pair, and `clean_anchor`, `clean_positive` and `clean_hard_negatives`."""
        return plan.pair() | {f"clean_{name}": view for name, view in plan.separate().items()}

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `off_dropout` over the batch."""
        names = "clean_positive", "clean_hard_negatives"
        positives, hard_negatives = embedded.everywhere(*names)
        fields |= {"candidates": embedded.candidates(*names, pair=("clean_anchor", "clean_positive"))}
        losses = off_dropout(
            *embedded.pair, embedded["clean_anchor"], positives, hard_negatives, embedded.own, **fields
        )
        return embedded.mean(losses)
