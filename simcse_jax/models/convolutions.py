"""Convolutions over a sentence's token states, between the encoder and the pooler: IS-BERT's local features."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.products import DType, einsum

PREFIX = "convolutions."  # the names of their parameters: convolutions.0.kernel, convolutions.0.bias, …


class Convolution(nnx.Module):
    """One convolution of W tokens: `kernel` (W, D, C) and `bias` (C,). Its parameters are loaded, or from `fresh`."""

    def __init__(self, width: int, size: int, channels: int):
        self.kernel = nnx.Param(jnp.zeros((width, size, channels)))
        self.bias = nnx.Param(jnp.zeros(channels))


def layers(config: EncoderConfig) -> list[Convolution]:
    """The convolutions of a model, which may have none."""
    if config.convolutions is None:
        return []
    size, channels = config.hidden_size, config.convolutions.channels
    return [Convolution(width, size, channels) for width in config.convolutions.widths]


def convolve(
    convolutions: Sequence[Convolution],
    hidden: Float[Array, "B T D"],
    attention_mask: Int[AnyArray, "B T"],
    activation: str,
    dtype: DType,
) -> Float[Array, "B T _E"]:
    """The features of each token, those of all convolutions one after the other.

        c_t = f(Σ_k K_k h_{t + k − (W − 1) / 2} + b),   k = 0 … W − 1

    IS-BERT (Zhang et al. 2020, arXiv:2009.12061), section 3. h is zero outside of the sentence, and at padding.
    The released code convolves whatever the encoder has at padding, so a sentence's features depend on its batch
    there; for a sentence without padding the two are the same.

    f is `relu` in the paper, `none` in the released code, as in sentence-transformers' module CNN. W is odd; all
    convolutions have the same number of channels. The features are float32, and of no meaning at padding.
    """
    kernels = [convolution.kernel[...] for convolution in convolutions]
    tokens = jnp.where(attention_mask[:, :, None] > 0, hidden, 0)
    # One product for all shifts of all kernels: each then moves its result instead of its input.
    joined = jnp.concatenate([kernel.swapaxes(0, 1).reshape(kernel.shape[1], -1) for kernel in kernels], axis=1)
    rows, length, size = tokens.shape
    parts = einsum("nf,fg->ng", tokens.reshape(-1, size), joined, dtype).reshape(rows, length, -1)
    features, start = [], 0
    for convolution, kernel in zip(convolutions, kernels, strict=True):
        width, _, channels = kernel.shape
        reach = width // 2
        padded = jnp.pad(parts[:, :, start : start + width * channels], ((0, 0), (reach, reach), (0, 0)))
        shifted = [padded[:, k : k + length, k * channels : (k + 1) * channels] for k in range(width)]
        features.append(sum(shifted[1:], start=shifted[0]) + convolution.bias[...])
        start += width * channels
    joined_features = jnp.concatenate(features, axis=-1)
    return jax.nn.relu(joined_features) if activation == "relu" else joined_features


def fresh(config: EncoderConfig, key: Key[Array, ""]) -> dict[str, jax.Array]:
    """The initial parameters by name: U(±1 / √(W D)) for kernels and biases, PyTorch's default, as released."""
    assert config.convolutions is not None
    params = {}
    for number, width in enumerate(config.convolutions.widths):
        bound = (width * config.hidden_size) ** -0.5
        channels = config.convolutions.channels
        shapes = {"kernel": (width, config.hidden_size, channels), "bias": (channels,)}
        for part, (name, shape) in enumerate(shapes.items()):
            part_key = jax.random.fold_in(key, 2 * number + part)
            params[f"{PREFIX}{number}.{name}"] = jax.random.uniform(part_key, shape, jnp.float32, -bound, bound)
    return params
