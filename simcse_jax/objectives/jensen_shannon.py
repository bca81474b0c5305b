"""Mutual information between tokens and sentences, estimated with the Jensen-Shannon divergence: IS-BERT."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.tokens import Tokens


def jensen_shannon(
    local: Float[AnyArray, "B T D"],
    mask: Int[AnyArray, "B T"],
    sentences: Float[AnyArray, "N D"],
    positions: Int[AnyArray, " B"],
    psum: Callable[[Array], Array],
    candidates: Candidates | None = None,
) -> Float[Array, ""]:
    """Each token's features find their own sentence's vector, and no other one.

        s_tj = local_t · sentence_j
        ℓ = 1/M Σ_t [ softplus(−s_t,own(t)) + 1/(N − 1) Σ_{j ≠ own(t)} softplus(s_tj) ] − 2 log 2

    IS-BERT (Zhang et al. 2020, arXiv:2009.12061), section 3; −ℓ is the Jensen-Shannon estimate of Nowozin et al. 2016
    and Hjelm et al. 2019, whose largest value is 2 log 2. t runs over the M tokens of the whole batch, as in the
    released code: each token counts the same, so a long sentence counts more than a short one. The constant, which no
    gradient has, is that of the released code.

    `positions` are those of this device's sentences among all. Of `candidates` that are left out as negatives, N − 1 is
    the number of the others.
    """
    scores = jnp.einsum("btd,nd->btn", local, sentences)
    is_own = positions[:, None, None] == jnp.arange(len(sentences))
    num_negatives: Array | int = len(sentences) - 1
    own_losses, losses = jax.nn.softplus(-scores), jax.nn.softplus(scores)
    if candidates is not None:
        is_negative = ~(candidates.left_out() | is_own)
        losses = jnp.where(is_negative, losses, 0.0)
        num_negatives = jnp.maximum(jnp.sum(is_negative, axis=-1, keepdims=True), 1)
    losses = jnp.where(is_own, own_losses, losses / num_negatives)
    is_token = mask > 0
    total = psum(jnp.sum(jnp.where(is_token[:, :, None], losses, 0.0)))
    return total / psum(jnp.sum(is_token).astype(jnp.float32)) - 2 * jnp.log(2.0)


class JensenShannon(declarations.JensenShannon):
    """IS-BERT: tokens of the anchors, and the embeddings of the positives, which may be the same view."""

    def tokens(self, tokens: Tokens) -> tuple[Float[Array, "B T D"], Int[Array, "B T"]]:
        """The features of the anchors' tokens, the mean under their masks, and which are tokens."""
        features = jnp.mean(tokens.features["anchor"].astype(jnp.float32), axis=0)
        _, mask = tokens.rows.read(tokens.plan.pair_columns[:1], features.shape[1])
        return features, mask

    def loss(self, embedded: Embedded) -> Float[Array, ""]:
        """`jensen_shannon` of the anchors' tokens."""
        (local, mask), sentences = embedded.tokens, embedded.gather(embedded["positive"][None])[0]
        local, candidates = local[..., : sentences.shape[1]], embedded.candidates("positive")
        return jensen_shannon(local, mask, sentences, embedded.own, embedded.psum, candidates)
