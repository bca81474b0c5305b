"""The contrastive objective of SimCSE, in one direction or both, with the negatives of one view or of both."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.similarity import comparable, map_rows
from simcse_jax.objectives.similarity import normalize as normalize  # objectives from outside import it from here


def info_nce(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "N D"],
    hard_negatives: Float[AnyArray, "*H N D"] | None,
    positions: Int[AnyArray, " B"],
    *,
    temperature: Float[AnyArray, ""] | float,
    hard_negative_weight: Float[AnyArray, ""] | Float[AnyArray, " HN"] | float = 1.0,
    similarity: str = "cosine",
    candidates: Candidates | None = None,
    documents: Float[AnyArray, "B D"] | None = None,
    margin: float = -1.0,
    hardness: float = 0.0,
    weighted: str = "all",
) -> Float[Array, " B"]:
    """InfoNCE with in-batch negatives, one loss per anchor.

        ℓ_i = −log  exp(s(h_i, h_i⁺)) / Σ_j ( exp(s(h_i, h_j⁺)) + α^{1[i=j]} exp(s(h_i, h_j⁻)) )

    with s = cosine / τ or dot product / τ, j over the N examples of the global batch: SimCSE equation 8; equation 5
    if α = 1, equations 1 and 4 without hard negatives. (Equation 8 omits i in α's exponent; the paper's text says
    that the indicator is 1 if and only if i = j.) Each further kind of negatives, such as the neutral hypotheses
    of SimCSE's Table 7, adds a term like the last one.

    Negatives that are more similar than the positive by more than `margin` are left out as false ones: those with
    c_ij > c_ii⁺ + margin, c = cosine or dot product, as in the factors m_ij of Qwen3-Embedding (Zhang et al. 2025,
    arXiv:2506.05176, Section 2). With `hardness` β a negative's term is multiplied by e^{β c}, without a gradient of
    this factor: Lan et al. 2025 (arXiv:2503.04812), equation 5, of other examples' sentences; EmbeddingGemma (Vera et
    al. 2025, arXiv:2509.20354), of an anchor's own hard negatives.

    Args:
      anchors: (B, D) the local rows.
      positives: (N, D) of the global batch.
      hard_negatives: (N, D) of the global batch, (H, N, D) for H kinds of them, or None.
      positions: (B,) the row of `positives` that belongs to each anchor.
      hard_negative_weight: α, or one of each hard negative, (HN,); 0 leaves an anchor's own hard negatives out.
      similarity: cosine or dot.
      candidates: which positives and hard negatives of other examples are left out of the sums; None keeps all.
      documents: (B, D) the local rows' positives, if these are compared too, with other examples' positives and hard
        negatives; then the first kind of `hard_negatives` are the anchors, which are no documents. None: they are not.
      margin: -1 leaves out none.
      hardness: β; 0 weighs all alike.
      weighted: which negatives β applies to, see `declarations.WEIGHTED`.
    """
    leaves_out, adjusts = margin >= 0, margin >= 0 or hardness > 0
    anchors, positives = comparable(similarity, anchors, positives)
    examples, columns = len(positives), len(positives)
    if hard_negatives is not None:
        (hard_negatives,) = comparable(similarity, hard_negatives)
        hard_negatives = hard_negatives.reshape(-1, hard_negatives.shape[-1])  # kind after kind
        columns += len(hard_negatives)
    if documents is not None:
        assert hard_negatives is not None
        (documents,) = comparable(similarity, documents)
        all_documents = jnp.concatenate([positives, hard_negatives[examples:]])
        columns += len(all_documents)

    def adjusted(
        logits: Float[AnyArray, "R C"], positive: Float[Array, " R"], is_own: Bool[Array, "R C"], *, hard: bool
    ) -> Float[Array, "R C"]:
        """Without false negatives, and weighted by hardness; an example's own positive stays as it is."""
        chosen = {"own": is_own if hard else False, "others": ~is_own, "all": True if hard else ~is_own}[weighted]
        weighed = jnp.add(logits, jnp.where(chosen, hardness * temperature * jax.lax.stop_gradient(logits), 0.0))
        is_false = jnp.greater(logits, positive[:, None] + margin / temperature)
        return jnp.where(is_false, -jnp.inf, weighed) if leaves_out else weighed

    def losses(
        anchors: Float[AnyArray, "R D"],
        positions: Int[AnyArray, " R"],
        pairs: Int[AnyArray, "R 2"] | None,
        documents: Float[AnyArray, "R D"] | None,
    ) -> Float[Array, " R"]:
        logits = anchors @ positives.T / temperature
        positive = jnp.take_along_axis(logits, positions[:, None], axis=1)[:, 0]
        if adjusts:
            logits = adjusted(logits, positive, positions[:, None] == jnp.arange(examples), hard=False)
        if hard_negatives is not None:
            negative_logits = anchors @ hard_negatives.T / temperature
            is_own = positions[:, None] == jnp.arange(len(hard_negatives)) % examples
            if adjusts:
                negative_logits = adjusted(negative_logits, positive, is_own, hard=True)
            negative_logits += jnp.where(is_own, jnp.log(hard_negative_weight), 0.0)
            logits = jnp.concatenate([logits, negative_logits], axis=1)
        if candidates is not None:
            logits = candidates.kept(logits, positions, pairs)
        if documents is not None:
            others = documents @ all_documents.T / temperature
            is_own = positions[:, None] == jnp.arange(len(all_documents)) % examples
            if adjusts:
                others = adjusted(others, positive, is_own, hard=False)
            left_out = is_own
            if candidates is not None:
                equal = candidates.left_out(pairs)
                equal = jnp.concatenate([equal[..., :1, :], equal[..., 2:, :]], axis=-2)
                left_out |= equal.reshape(*equal.shape[:-2], -1)
            logits = jnp.concatenate([logits, jnp.where(left_out, -jnp.inf, others)], axis=1)
        return jax.nn.logsumexp(logits, axis=1) - positive

    return map_rows(losses, columns, anchors, positions, candidates and candidates.pairs, documents)


class InfoNCE(declarations.InfoNCE):
    """SimCSE's contrast; with negatives from both views, that of ConSERT and DeCLUTR."""

    def loss(self, embedded: Embedded, *, symmetric: bool, negatives: str = "other", **fields: Any) -> Float[Array, ""]:
        """The mean of `info_nce` over the batch.

        Symmetric, positives find their anchors too: ½ ( ℓ(h_i → h_i⁺) + ℓ(h_i⁺ → h_i) ). The isotropy paper's Section
        2.3 describes it in words, as the Multiple Negatives Symmetric Ranking Loss of the models that it studies. Hard
        negatives serve the anchors alone, as in sentence-transformers' loss of that name.

        Negatives of both views are those of NT-Xent, also the anchor's own view:

            ℓ_i = −log  e^{s(a_i, b_i)} / ( Σ_j e^{s(a_i, b_j)} + Σ_{j≠i} e^{s(a_i, a_j)} )

        It is `info_nce` with the view's own rows as hard negatives, of which an anchor's own has the weight 0. With
        the symmetric one, the mean over N examples is the mean over 2N rows of SimCLR (Chen et al. 2020, equation 1),
        ConSERT (Yan et al. 2021, equation 1) and DeCLUTR (Giorgi et al. 2021, equations 2 and 3). ConSERT's code has
        0.15 (mean ℓ + mean ℓ′), which is this with weight 0.3. Hard negatives are further terms of an anchor's sum.

        All negatives, in one sum, are those of Qwen3-Embedding: also Σ_{j≠i} e^{s(b_i, d_j)} with the positives and the
        hard negatives d of other examples.
        """
        (anchors, positives), positions = embedded.pair, embedded.own
        both = negatives in ("both", "all")
        if both:
            hard_rows = embedded.stacked("hard_negatives") if "hard_negatives" in embedded.views else ()
            all_anchors, all_positives, *hard = embedded.gather(jnp.stack([*embedded.pair, *hard_rows]))
            alpha, fields = fields.get("hard_negative_weight", 1.0), fields | {"hard_negative_weight": 0.0}
            own: dict[str, Any] = {"documents": positives} if negatives == "all" else {}
            if hard:
                kinds_own = jnp.array([0.0, *[1.0] * len(hard)]) * alpha
                own["hard_negative_weight"] = jnp.repeat(kinds_own, len(all_anchors))
            further = jnp.stack([all_anchors, *hard]) if hard else all_anchors
            candidates = embedded.candidates("positive", "anchor", "hard_negatives")
            forward = info_nce(anchors, all_positives, further, positions, candidates=candidates, **fields | own)
        else:
            kinds = "positive", "hard_negatives" if negatives == "other" else ""  # which no view has
            all_positives, hard_negatives = embedded.everywhere(*kinds)
            candidates = embedded.candidates(*kinds)
            forward = info_nce(anchors, all_positives, hard_negatives, positions, candidates=candidates, **fields)
        if not symmetric:
            return embedded.mean(forward)
        if not both:
            all_anchors = embedded.gather(anchors[None])[0]
        further = all_positives if both else None
        names = ["anchor"] if further is None else ["anchor", "positive"]
        candidates = embedded.candidates(*names, pair=("positive", "anchor"))
        backward = info_nce(positives, all_anchors, further, positions, candidates=candidates, **fields)
        return embedded.mean((forward + backward) / 2)
