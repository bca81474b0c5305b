"""A network between the embeddings and the objectives, in training only, with batch norm over the global batch."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.parameters import Arrays

EPSILON = 1e-5  # that PyTorch's batch norm adds to a variance


class Projector(NamedTuple):
    """The shape of a projector; see the fields of `config.projector`."""

    widths: tuple[str, ...]
    bias: bool = False
    last_norm: str = "plain"
    statistics: str = "together"

    @property
    def ignores_shift(self) -> bool:
        """Whether batch norm follows the first layer, and takes away a vector that is added to all embeddings."""
        return len(self.widths) > 1 or self.last_norm != "none"


def width(text: str, hidden_size: int) -> int:
    """A width in numbers: `2D` is twice the hidden size."""
    return int(text.removesuffix("D") or 1) * (hidden_size if text.endswith("D") else 1)


def fresh_projector(projector: Projector, hidden_size: int, key: Key[Array, ""]) -> dict[str, jax.Array]:
    """Initial values, float32: weights N(0, 0.02²), biases 0, scales 1, as DiffCSE's and SCD's code has them."""
    sizes = [hidden_size, *(width(text, hidden_size) for text in projector.widths)]
    last = len(projector.widths) - 1
    params = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        kernel = jax.random.normal(jax.random.fold_in(key, layer), (inputs, outputs), jnp.float32)
        params[f"layers.{layer}.kernel"] = 0.02 * kernel
        if layer == last and projector.bias:
            params[f"layers.{layer}.bias"] = jnp.zeros(outputs)
        if layer < last or projector.last_norm == "affine":
            params[f"norms.{layer}.scale"] = jnp.ones(outputs)
            params[f"norms.{layer}.bias"] = jnp.zeros(outputs)
    return params


def project(
    views: Float[AnyArray, "V B D"], projector: Projector, params: Arrays, psum: Callable[[jax.Array], jax.Array]
) -> Float[Array, "V B P"]:
    """Projected embeddings: linear layers, each but the last followed by batch norm and a ReLU.

    Batch norm's statistics are over all rows of all V views in the global batch, exactly; there are no running ones. A
    hidden layer has no bias: batch norm would take it away again (SCD's first layer has one, which changes nothing).
    """
    x = jnp.asarray(views).reshape(-1, views.shape[-1])
    last = len(projector.widths) - 1
    for layer in range(last + 1):
        x = x @ params[f"layers.{layer}.kernel"]
        if f"layers.{layer}.bias" in params:
            x += params[f"layers.{layer}.bias"]
        if layer < last or projector.last_norm != "none":
            x = batch_norm(x, psum)
        if f"norms.{layer}.scale" in params:
            x = x * params[f"norms.{layer}.scale"] + params[f"norms.{layer}.bias"]
        if layer < last:
            x = jax.nn.relu(x)
    return x.reshape(*views.shape[:2], -1)


def batch_norm(rows: Float[AnyArray, "R F"], psum: Callable[[jax.Array], jax.Array]) -> Float[Array, "R F"]:
    """(R, F) rows with mean 0 and variance 1 in each column, over the rows of all devices.

        y = (x − mean) / √(variance + 1e-5)

    PyTorch's `BatchNorm1d` in training, without scale and shift: the variance is divided by the number of rows.
    """
    count = psum(jnp.float32(len(rows)))
    centred = jnp.asarray(rows) - psum(jnp.sum(rows, axis=0)) / count
    variance = psum(jnp.sum(centred * centred, axis=0)) / count
    return centred * jax.lax.rsqrt(variance + EPSILON)
