"""Modules after the pooler and the head in some models of sentence-transformers: functions of embeddings."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.nonlinearities import gelu, layer_norm
from simcse_jax.models.parameters import subset

PREFIX = "modules."  # the names of their weights start with it, and with the module's number: modules.0.kernel
LAYER_NORM_EPSILON = 1e-5  # PyTorch's default, which sentence-transformers leaves as it is


class Dense(NamedTuple):
    """A linear layer and an activation: `kernel` (D, E), `bias` (E,) and, to add inputs of D ≠ E, `residual` (D, E)."""

    activation: str  # of `ACTIVATIONS`
    size: int  # E
    residual: bool = False  # adds the input to the output


class LayerNorm(NamedTuple):
    """Layer normalization: `scale` (D,) and `bias` (D,)."""


class Normalize(NamedTuple):
    """Scales embeddings to length 1."""


class Cut(NamedTuple):
    """Keeps the first elements of an embedding."""

    size: int


Module = Dense | LayerNorm | Normalize | Cut
Weights = Mapping[str, AnyArray]

# By the names of PyTorch's classes, with the defaults of their arguments.
ACTIVATIONS: dict[str, Callable[[Float[Array, "B D"]], Float[Array, "B D"]]] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "ReLU6": jax.nn.relu6,
    "GELU": gelu,
    "SiLU": jax.nn.silu,
    "Mish": jax.nn.mish,
    "Sigmoid": jax.nn.sigmoid,
    "LogSigmoid": jax.nn.log_sigmoid,
    "LeakyReLU": lambda x: jax.nn.leaky_relu(x, 0.01),
    "ELU": jax.nn.elu,
    "SELU": jax.nn.selu,
    "CELU": jax.nn.celu,
    "Softplus": jax.nn.softplus,
    "Softsign": jax.nn.soft_sign,
    "Hardtanh": jax.nn.hard_tanh,
    "Hardsigmoid": jax.nn.hard_sigmoid,
    "Hardswish": jax.nn.hard_swish,
}


def apply(modules: Sequence[Module], weights: Weights, x: Float[Array, "B D"]) -> Float[Array, "B _E"]:
    """Embeddings (B, D) through all modules, in their order, in float32.

    `weights`: their weights, with the names that `PREFIX` describes.
    """
    for number, module in enumerate(modules):
        own = {name: jnp.asarray(value) for name, value in subset(weights, f"{PREFIX}{number}.").items()}
        match module:
            case Dense():
                y = ACTIVATIONS[module.activation](x @ own["kernel"] + own["bias"])
                x = y + (x @ own["residual"] if "residual" in own else x) if module.residual else y
            case LayerNorm():
                x = layer_norm(x, own["scale"], own["bias"], LAYER_NORM_EPSILON)
            case Normalize():
                x = x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)  # as PyTorch does
            case Cut():
                x = x[:, : module.size]
    return x


def output_size(modules: Sequence[Module], size: int) -> int:
    """The number of elements of an embedding after all modules; `size` is that before them."""
    for module in modules:
        if isinstance(module, Dense):
            size = module.size
        elif isinstance(module, Cut):
            size = min(size, module.size)
    return size
