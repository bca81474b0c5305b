"""The norm of an encoder's embeddings, of its layers, and of its head of masked words."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.nonlinearities import layer_norm, rms_norm


class Norm(nnx.Module):
    """Layer or root-mean-square normalization of the hidden states, in float32."""

    def __init__(self, config: EncoderConfig, size: int):
        self.scale = nnx.Param(jnp.full(size, 1.0 - config.norm_offset))
        self.bias = nnx.Param(jnp.zeros(size)) if config.norm_bias else None
        self.config = config

    def __call__(self, x: Float[Array, "*tokens D"], dtype: jnp.dtype | None = None) -> Float[Array, "*tokens D"]:
        """See `normalized`."""
        return normalized(x, self.scale[...], None if self.bias is None else self.bias[...], self.config, dtype)


def normalized(
    x: Float[Array, "*tokens D"],
    scale: Float[AnyArray, " D"],
    bias: Float[AnyArray, " D"] | None,
    config: EncoderConfig,
    dtype: jnp.dtype | None = None,
) -> Float[Array, "*tokens D"]:
    """Each token's vector with mean 0 and variance 1, then scaled and, where there is a bias, shifted.

    With `rms_norm` its mean square is 1 instead, and nothing is shifted. With a `dtype`, GPUs round x and the result of
    a layer norm to it.
    """
    if config.rms_norm:
        return rms_norm(x, scale + config.norm_offset, config.layer_norm_eps)
    bias = jnp.zeros_like(scale) if bias is None else bias
    return layer_norm(x, scale, bias, config.layer_norm_eps, dtype)
