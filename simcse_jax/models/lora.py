"""LoRA: a product of low rank that is added to a linear map (Hu et al. 2021, arXiv:2106.09685, section 4.1).

    h = x W + b + α/r · drop(x) A B

W (F, G) and b are frozen, A (F, r) and B (r, G) train. B starts at zero, so the network starts as it was. Dropout is
applied to the product's input alone, with a mask of its own for each linear map, as in PEFT.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig, Lora, Site
from simcse_jax.models.dropout import Mask, Place, drop
from simcse_jax.models.parameters import Arrays
from simcse_jax.models.products import DType, einsum

NAME = "lora"  # of a layer's adapters, among its parameters
PARTS = ("qkv", "attention_output", "intermediate", "output")  # the products of a layer
SITE, MOST_JOINED = 1 << 24, 3  # numbers of masks, far from those of other dropouts; a product joins 3 maps at most

Masks = Mapping[str, Mask]  # by the names of sites; without one, nothing of its input is dropped
NO_MASKS: Masks = {}


class Adapter(nnx.Module):
    """A and B of one linear map. Their values are loaded, or from `fresh`."""

    def __init__(self, features: tuple[int, int], rank: int, rngs: nnx.Rngs):
        self.a = nnx.Linear(features[0], rank, use_bias=False, rngs=rngs)
        self.b = nnx.Linear(rank, features[1], use_bias=False, rngs=rngs)


class Adapters(nnx.Module):
    """The adapters of one layer, by the names of their sites."""

    def __init__(self, config: EncoderConfig, group: int, rngs: nnx.Rngs):
        self.lora, self.sites = lora_of(config), config.adapted(group)
        self.config = config
        for site in self.sites:
            setattr(self, site.name, Adapter(features(config, site), self.lora.rank, rngs))

    def __call__(
        self,
        y: Float[Array, "*tokens G"],
        x: Float[Array, "*tokens F"],
        part: str,
        masks: Masks,
        dtype: DType,
        start: int = 0,
    ) -> Float[Array, "*tokens G"]:
        """`y`, the product `part` of x or its columns from `start` on, with what the adapters add to these."""
        stop = start + y.shape[-1]
        for site in self.sites:
            adapter, columns = getattr(self, site.name), self.config.columns(site)
            first, low, high = columns.start, max(start, columns.start), min(stop, columns.stop)
            if site.part != part or low >= high:
                continue
            inputs = drop(x, masks.get(site.name)).reshape(-1, x.shape[-1])
            inner = einsum("nf,fr->nr", inputs, adapter.a.kernel[...], dtype)
            update = einsum("nr,rg->ng", inner, adapter.b.kernel[...][:, low - first : high - first], dtype)
            update = self.lora.scale * update.reshape(*x.shape[:-1], high - low)
            y += jnp.pad(update, [(0, 0)] * (x.ndim - 1) + [(low - start, stop - high)])
        return y


def lora_of(config: EncoderConfig) -> Lora:
    """The settings of an encoder that has LoRA."""
    assert config.lora is not None
    return config.lora


def features(config: EncoderConfig, site: Site) -> tuple[int, int]:
    """(F, G), the numbers of features that a linear map reads and makes."""
    read = {"attention_output": config.heads_width, "output": config.intermediate_size}
    made = config.columns(site)
    return read.get(site.part, config.hidden_size), made.stop - made.start


def mask_site(layer: Place, site: Site) -> Place:
    """The number of a linear map's masks, which no other dropout has; the same whatever else has LoRA."""
    return SITE + (len(PARTS) * layer + PARTS.index(site.part)) * MOST_JOINED + site.index


def names(config: EncoderConfig) -> dict[tuple[int, Site], tuple[str, str]]:
    """The parameters A and B of each linear map with LoRA, by its layer (or group of layers) and site."""
    return {
        (group, site): (f"{place}.a.kernel", f"{place}.b.kernel")
        for group in sorted(set(config.groups))
        for site in config.adapted(group)
        for place in [f"encoder.layers.{group}.{NAME}.{site.name}"]
    }


def fresh(config: EncoderConfig, key: Key[Array, ""]) -> dict[str, jax.Array]:
    """First values: A uniform within ±1/√F, as in PEFT, and B zero."""
    params: dict[str, jax.Array] = {}
    for (group, site), (a, b) in names(config).items():
        rank, (read, made) = lora_of(config).rank, features(config, site)
        site_key = jax.random.fold_in(key, mask_site(group, site))
        bound = 1 / math.sqrt(read)
        first = jax.random.uniform(site_key, (read, rank), jnp.float32, -bound, bound)
        params |= {a: first, b: jnp.zeros((rank, made))}
    return params


def merge(params: Arrays, config: EncoderConfig, prefix: str = "") -> dict[str, Any]:
    """The parameters of an encoder without LoRA that computes the same: W + α/r · A B in the place of W, A and B."""
    result = dict(params)
    for (group, site), (a, b) in names(config).items():
        kernel = f"{prefix}encoder.layers.{group}.{site.part}.kernel"
        factors = result.pop(prefix + a), result.pop(prefix + b)
        result[kernel] = _add(result[kernel], *factors, lora_of(config).scale, config.columns(site).start)
    return result


@functools.partial(jax.jit, static_argnums=(3, 4))
def _add(
    kernel: Float[AnyArray, "F G"], a: Float[AnyArray, "F R"], b: Float[AnyArray, "R H"], scale: float, first: int
) -> Float[Array, "F G"]:
    update = scale * jnp.matmul(a, b, precision="highest")
    return jnp.asarray(kernel).at[:, first : first + b.shape[1]].add(update)
