"""Mutual information between tokens and sentences, estimated with the Jensen-Shannon divergence: IS-BERT."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives.objective import Embedded, Needs, Objective


def jensen_shannon(
    local: Float[AnyArray, "B T D"],
    mask: Int[AnyArray, "B T"],
    sentences: Float[AnyArray, "N D"],
    own: Int[AnyArray, " B"],
    psum: Callable[[jax.Array], jax.Array],
) -> Float[Array, ""]:
    """Each token's features find their own sentence's vector, and no other one.

        s_tj = local_t · sentence_j
        ℓ = 1/M Σ_t [ softplus(−s_t,own(t)) + 1/(N − 1) Σ_{j ≠ own(t)} softplus(s_tj) ] − 2 log 2

    IS-BERT (Zhang et al. 2020, arXiv:2009.12061), section 3; −ℓ is the Jensen-Shannon estimate of Nowozin et al. 2016
    and Hjelm et al. 2019, whose largest value is 2 log 2. t runs over the M tokens of the whole batch, as in the
    released code: each token counts the same, so a long sentence counts more than a short one. The constant, which no
    gradient has, is that of the released code.

    Args:
      local: (B, T, D) the features of the tokens of this device's sentences.
      mask: (B, T), 1 for tokens and 0 for padding, which does not count.
      sentences: (N, D) the vectors of all sentences of the global batch.
      own: (B,) the position of each local sentence in `sentences`.
      psum: sums an array over the devices; the identity where one device has all rows.

    Returns:
      The loss of the global batch, a scalar, the same on every device.
    """
    scores = jnp.einsum("btd,nd->btn", local, sentences)
    is_own = own[:, None, None] == jnp.arange(len(sentences))
    losses = jnp.where(is_own, jax.nn.softplus(-scores), jax.nn.softplus(scores) / (len(sentences) - 1))
    there = mask > 0
    total = psum(jnp.sum(jnp.where(there[:, :, None], losses, 0.0)))
    return total / psum(jnp.sum(there).astype(jnp.float32)) - 2 * jnp.log(2.0)


def _term(embedded: Embedded) -> Float[Array, ""]:
    assert embedded.local is not None  # `Needs.local_features`
    return jensen_shannon(*embedded.local, embedded.others(embedded.positive)[0], embedded.own, embedded.psum)


OBJECTIVE = Objective(_term, needs=Needs(local_features=True))
