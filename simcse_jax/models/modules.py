"""Modules after the pooler and the head in some models of sentence-transformers: functions of embeddings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.config import Cut, Dense, LayerNorm, Module, Normalize
from simcse_jax.models.nonlinearities import gelu, layer_norm

PREFIX = "modules."  # the names of their weights start with it, and with the module's number: modules.0.kernel
LAYER_NORM_EPSILON = 1e-5  # PyTorch's default, which sentence-transformers leaves as it is

# By the names of PyTorch's classes.
ACTIVATIONS: dict[str, Callable[[Float[Array, "B D"]], Float[Array, "B D"]]] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "GELU": gelu,
    "SiLU": jax.nn.silu,
    "Sigmoid": jax.nn.sigmoid,
}


def shapes(module: Module) -> dict[str, tuple[int, ...]]:
    """The shapes of a module's weights, by name."""
    match module:
        case Dense(size=size, inputs=inputs):
            dense: dict[str, tuple[int, ...]] = {"kernel": (inputs, size)}
            dense |= {"bias": (size,)} if module.bias else {}
            return dense | ({"residual": (inputs, size)} if module.residual and inputs != size else {})
        case LayerNorm(inputs=inputs):
            return {"scale": (inputs,), "bias": (inputs,)}
    return {}


def apply(
    modules: Sequence[Module], weights: Sequence[Mapping[str, Any]], x: Float[Array, "B D"]
) -> Float[Array, "B _E"]:
    """Embeddings (B, D) through all modules, in their order, in float32.

    `weights`: of each, by name, arrays or Flax's parameters; the last modules may have none.
    """
    for number, module in enumerate(modules):
        params = {name: weights[number][name][...] for name in shapes(module)}
        match module:
            case Dense():
                y = x @ params["kernel"]
                y = ACTIVATIONS[module.activation](y + params["bias"] if module.bias else y)
                x = y + (x @ params["residual"] if "residual" in params else x) if module.residual else y
            case LayerNorm():
                x = layer_norm(x, params["scale"], params["bias"], LAYER_NORM_EPSILON)
            case Normalize():
                x = x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)  # as PyTorch does
            case Cut():
                x = x[:, : module.size]
    return x
