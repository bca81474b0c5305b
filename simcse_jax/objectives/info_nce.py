"""The contrastive objective of SimCSE."""

import jax
import jax.numpy as jnp

from simcse_jax.chunks import in_chunks

SIMILARITIES = 2**22  # computed at a time: a batch of 16,384 needs 1 GiB for all of them, and as much for gradients


def normalize(x: jax.Array) -> jax.Array:
    """Rows of length 1. The floor keeps a zero vector's gradient finite (as PyTorch's cosine similarity does)."""
    norm_squared = jnp.sum(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(norm_squared, 1e-16))


def info_nce(
    anchors: jax.Array,
    positives: jax.Array,
    hard_negatives: jax.Array | None,
    own: jax.Array,
    *,
    temperature: jax.Array | float,
    hard_negative_weight: jax.Array | float = 1.0,
) -> jax.Array:
    """InfoNCE with in-batch negatives, one loss an anchor.

        ℓ_i = −log  exp(s(h_i, h_i⁺)) / Σ_j ( exp(s(h_i, h_j⁺)) + α^{1[i=j]} exp(s(h_i, h_j⁻)) )

    with s = cosine / τ, j over the N examples of the global batch: SimCSE equation 8; equation 5 where α = 1,
    equations 1 and 4 without hard negatives. (Equation 8 leaves α's exponent without i; its text says that
    the indicator is 1 if and only if i = j.)

    Args:
      anchors: (B, D) the rows at hand.
      positives: (N, D) of the global batch.
      hard_negatives: (N, D) of the global batch, or None.
      own: (B,) the row of `positives` that belongs to each anchor.
      temperature: τ.
      hard_negative_weight: α; 0 leaves an anchor's own hard negative out.

    Returns:
      (B,) losses.
    """
    positives = normalize(positives)
    hard_negatives = None if hard_negatives is None else normalize(hard_negatives)

    def losses(anchors: jax.Array, own: jax.Array) -> jax.Array:
        logits = anchors @ positives.T / temperature
        positive = jnp.take_along_axis(logits, own[:, None], axis=1)[:, 0]
        if hard_negatives is not None:
            negative_logits = anchors @ hard_negatives.T / temperature
            is_own = own[:, None] == jnp.arange(hard_negatives.shape[0])
            negative_logits += jnp.where(is_own, jnp.log(hard_negative_weight), 0.0)
            logits = jnp.concatenate([logits, negative_logits], axis=1)
        return jax.nn.logsumexp(logits, axis=1) - positive

    columns = positives.shape[0] * (1 if hard_negatives is None else 2)
    return in_chunks(losses, max(1, SIMILARITIES // columns), normalize(anchors), own)
