"""Dimension-wise contrastive learning: SimCSE++'s remedy for feature corruption."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded


def dimension_wise(
    first: Float[AnyArray, "B D"],
    second: Float[AnyArray, "B D"],
    psum: Callable[[Array], Array],
    *,
    temperature: Float[AnyArray, ""] | float,
    reading: str = "paper",
) -> Float[Array, ""]:
    """DCL: every dimension of one view finds itself among the dimensions of the other view.

        ℓ = −Σ_c log  e^{s(z¹_c, z²_c)} / Σ_d e^{s(z¹_c, z²_d)},   s(z¹_c, z²_d) = Σ_i z̃¹_ic z̃²_id / τ

    SimCSE++ equation 5, z̃ being z standardized over the N sentences of the global batch, dimension by dimension.
    The paper and its released code differ, so there are two complete readings:

    - `paper`: standardized with N − 1; s the plain product over the batch, at most (N − 1) / τ; the sum over the D
      dimensions.
    - `released`: standardized with N (by PyTorch's batch norm, without the 1e-5 that it adds to the variance); s
      divided by N, at most 1 / τ; the mean over the D dimensions.

    τ = 5 and λ = 0.1 mean different things in each. With N = 64, τ = 5 gives logits up to 12.6 in `paper`, a sharp
    choice, and up to 0.2 in `released`, a nearly uniform one; λ weighs a sum of D = 768 losses in `paper` and a mean in
    `released`. Exactly: `paper` with (τ, λ) equals `released` with (τ / (N − 1), λ D).

    A dimension that is constant over the batch cannot be standardized: it counts as zero, similar to none, and its
    gradient is zero.
    """
    count = psum(jnp.float32(first.shape[0]))
    degrees = jnp.maximum(count - 1, 1) if reading == "paper" else count
    product = psum(standardize(first, count, degrees, psum).T @ standardize(second, count, degrees, psum))
    logits = product / temperature / (1 if reading == "paper" else count)
    losses = jax.nn.logsumexp(logits, axis=1) - jnp.diagonal(logits)
    return jnp.sum(losses) if reading == "paper" else jnp.mean(losses)


def standardize(
    x: Float[AnyArray, "B D"],
    count: Float[AnyArray, ""] | float,
    degrees: Float[AnyArray, ""] | float,
    psum: Callable[[Array], Array],
) -> Float[Array, "B D"]:
    """Columns of mean 0 and variance 1 over the global batch. Avoids E[x²] − E[x]², which loses precision."""
    mean = psum(jnp.sum(x, axis=0)) / count
    centred = x - mean
    variance = psum(jnp.sum(centred * centred, axis=0)) / degrees
    # Centring a constant column leaves the rounding error of its mean. The inner `where` keeps its gradient finite.
    varies = variance > 1e-12 * mean * mean
    return jnp.where(varies, centred * jax.lax.rsqrt(jnp.where(varies, variance, 1.0)), 0.0)


class DimensionWise(declarations.DimensionWise):
    """SimCSE++'s contrast of dimensions."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """`dimension_wise` of the pairs."""
        return dimension_wise(*embedded.pair, embedded.psum, **fields)
