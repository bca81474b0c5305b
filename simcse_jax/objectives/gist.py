"""GIST: InfoNCE without the negatives that a guide finds more similar than the positive."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.similarity import map_rows, normalize


def gist(
    views: Float[AnyArray, "K B D"],
    candidates: Float[AnyArray, "K N D"],
    guide: Float[AnyArray, "K B E"],
    guide_candidates: Float[AnyArray, "K N E"],
    positions: Int[AnyArray, " B"],
    *,
    temperature: Float[AnyArray, ""] | float,
    margin: Float[AnyArray, ""] | float = 0.0,
    margin_kind: str = "absolute",
    contrast_anchors: bool = True,
    contrast_positives: bool = True,
    exclusions: Candidates | None = None,
) -> Float[Array, " B"]:
    """Guided InfoNCE, one loss per anchor.

        ℓ_i = −log e^{s(a_i, p_i)} / ( e^{s(a_i, p_i)} + Σ_j e^{s(a_i, p_j)} + Σ_j e^{s(a_i, a_j)} + Σ_j e^{s(p_i, p_j)}
              + Σ_j e^{s(a_i, n_j)} )

    with s = cosine / τ, and sums over the pairs of the global batch alone whose similarity in the guide, g, is at most
    the threshold of anchor i: g(a_i, p_i) − m, or g(a_i, p_i) − m |g(a_i, p_i)| where the margin is relative. j ≠ i in
    the first three; anchors' own hard negatives are in the last. Solatorio 2024 (arXiv:2402.16829), equations 1 to 6;
    `GISTEmbedLoss` of sentence-transformers, which leaves an anchor's similarity with itself (and a positive's) out by
    the guide alone, so that it counts where the guide finds the pair's two sentences equal.

    Args:
      views: (K, B, D) the local rows: anchors a, positives p, then each kind of hard negatives n.
      candidates: (K, N, D) the same of the global batch.
      guide, guide_candidates: the guide's embeddings of the same sentences.
      positions: (B,) the local rows' positions in the global batch.
      temperature, margin, margin_kind: τ, m, and whether it is absolute or relative.
      contrast_anchors, contrast_positives: whether the second and the third sum are there.
      exclusions: which of the candidates are left out of the sums whatever the guide finds; None: none of them.
    """
    candidates, guide_candidates = normalize(candidates), normalize(guide_candidates)
    # Whose rows, which candidates, and whether an example's own is left out.
    kinds = [(0, 1, True), *[(0, 0, True)] * contrast_anchors, *[(1, 1, True)] * contrast_positives]
    kinds += [(0, kind, False) for kind in range(2, len(candidates))]

    def losses(
        rows: Float[AnyArray, "R 2 D"],
        guided: Float[AnyArray, "R 2 E"],
        positions: Int[AnyArray, " R"],
        pairs: Int[AnyArray, "R 2"] | None,
    ) -> Float[Array, " R"]:
        positive = jnp.sum(rows[:, 0] * rows[:, 1], axis=1) / temperature
        # From the same product as the others, so that the same sentence has the same similarity.
        threshold = jnp.take_along_axis(guided[:, 0] @ guide_candidates[1].T, positions[:, None], axis=1)
        threshold -= margin * (jnp.abs(threshold) if margin_kind == "relative" else 1.0)
        is_own = positions[:, None] == jnp.arange(candidates.shape[1])
        never = None if exclusions is None else exclusions.left_out(pairs)

        def logits(side: int, kind: int, leaves_out_own: bool) -> Float[Array, "R N"]:
            is_near = guided[:, side] @ guide_candidates[kind].T > threshold
            left_out = is_near | is_own if leaves_out_own else is_near
            if never is not None:
                left_out |= never[..., kind, :]
            return jnp.where(left_out, -jnp.inf, rows[:, side] @ candidates[kind].T / temperature)

        all_logits = [positive[:, None], *(logits(*kind) for kind in kinds)]
        return jax.nn.logsumexp(jnp.concatenate(all_logits, axis=1), axis=1) - positive

    pairs, guides = (jnp.stack([normalize(x[0]), normalize(x[1])], axis=1) for x in (views, guide))
    rows = pairs, jax.lax.stop_gradient(guides), positions, exclusions and exclusions.pairs
    return map_rows(losses, len(kinds) * candidates.shape[1], *rows)


class GIST(declarations.GIST):
    """InfoNCE whose negatives a teacher sorts out."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `gist` over the batch."""
        assert embedded.teacher is not None  # it needs one
        names = "anchor", "positive", "hard_negatives"
        views, guides = embedded.stacked(*names), embedded.stacked(*names, of=embedded.teacher)
        everywhere = views, embedded.gather(views), guides, embedded.gather(guides)
        return embedded.mean(gist(*everywhere, embedded.own, exclusions=embedded.candidates(*names), **fields))
