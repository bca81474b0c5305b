"""The two views of a sentence rank the other sentences of the batch alike: the first of RankCSE's two terms."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import map_rows, normalize

SMALLEST = 1e-7  # as released: of a probability, and of the logarithm of the mean


def ranking_consistency(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "B D"],
    all_anchors: Float[AnyArray, "N D"],
    all_positives: Float[AnyArray, "N D"],
    *,
    temperature: Float[AnyArray, ""] | float,
    reading: str = "paper",
) -> Float[Array, " B"]:
    """How much the similarity lists of a sentence's two views differ, one loss per sentence.

        ℓ_i = ½ KL(P_i ‖ M_i) + ½ KL(Q_i ‖ M_i),      M_i = ½ (P_i + Q_i)
        P_i = softmax_j cos(h_i, h_j⁺) / τ,           Q_i = softmax_j cos(h_i⁺, h_j) / τ

    with j over the N examples of the global batch: the ranking consistency of RankCSE (Liu et al. 2023,
    arXiv:2305.16726, Section 3.2), the Jensen-Shannon divergence of lists whose softmax is the probability of being the
    most similar one.

    Its public code, perceptiveshawty/RankCSE, bounds log M_i from below by 1e-7, where it means to bound M_i. No
    logarithm of a probability is above 0, so log M_i is that constant, and ½ Σ P log P + ½ Σ Q log Q is left: lists
    that are flat are rewarded, whether they agree or not. P and Q are at least 1e-7 there.
    """
    references = normalize(all_positives), normalize(all_anchors)

    def losses(*rows: Float[AnyArray, "R D"]) -> Float[Array, " R"]:
        logs = [
            jax.nn.log_softmax(row @ columns.T / temperature, axis=1)
            for row, columns in zip(rows, references, strict=True)
        ]
        if reading == "released":
            logs = [jnp.maximum(log, jnp.log(SMALLEST)) for log in logs]
            of_mean = jnp.full_like(logs[0], SMALLEST)
        else:
            of_mean = jnp.logaddexp(*logs) - jnp.log(2.0)
        p, q = (jnp.sum(jnp.exp(log) * (log - of_mean), axis=1) for log in logs)
        return (p + q) / 2

    return map_rows(losses, 2 * len(references[0]), normalize(anchors), normalize(positives))


class RankingConsistency(declarations.RankingConsistency):
    """RankCSE's consistency of two views."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `ranking_consistency` over the batch."""
        everywhere = embedded.gather(jnp.stack(embedded.pair))
        return embedded.mean(ranking_consistency(*embedded.pair, *everywhere, **fields))
