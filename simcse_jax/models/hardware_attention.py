"""What computes the attention of a long text from which nothing is dropped, by the platform of the program.

| platform | kernel | where it applies |
| --- | --- | --- |
| TPU | `flash_attention` | up to 8,192 tokens with heads of at most 128 numbers, 4,096 with 256 |
| NVIDIA GPU | cuDNN's | bfloat16, heads of at most 128 numbers, a multiple of 8 |

A CPU takes one head after the other. Elsewhere it is computed as without kernels. Those of a platform are a part of a
program only where JAX's plugin for it is installed, without which none is compiled for it.

Shapes: B sentences, H heads, T tokens, d numbers in a head.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.errors import installed
from simcse_jax.models.platforms import for_platform
from simcse_jax.models.products import DType

Heads = Float[Array, "B H T d"]
Attention = Callable[[Heads, Heads, Heads, Int[Array, "B T"]], Heads]  # of queries, keys, values and their mask

PLUGINS = {"tpu": ("libtpu",), "cuda": ("jax_cuda13_plugin", "jax_cuda12_plugin")}
LANES = 128  # of a TPU's registers, which an array's last axis fills
MOST_OF_TPU = 2**20  # numbers of a head: its gradients must have room on the chip, also on a v4
MOST_OF_CUDNN = 128  # numbers of a head: what GPUs before Hopper take


def by_platform(
    query: Heads,
    key: Heads,
    value: Heads,
    attention_mask: Int[Array, "B T"],
    window: int | None,
    dtype: DType,
    *,
    kernels: bool,
    on_cpu: Attention,
    otherwise: Attention,
) -> Heads:
    """Sums of the values weighted by attention, in `dtype`, by the platform that it is compiled for.

    Args:
      query, key, value: of tokens in their order.
      attention_mask: 1 for tokens and 0 for padding on the right.
      window: the most positions from a query to the keys that it sees; None: it sees all.
      kernels: whether the hardware's own may be taken.
      on_cpu: computes the same on a CPU.
      otherwise: elsewhere, where there is no kernel.
    """

    def on_tpu(query: Heads, key: Heads, value: Heads, mask: Int[Array, "B T"]) -> Heads:
        from simcse_jax.models.flash_attention import flash_attention  # takes half a second to import

        return flash_attention(query.astype(dtype), key.astype(dtype), value.astype(dtype), mask, window)

    def on_gpu(query: Heads, key: Heads, value: Heads, mask: Int[Array, "B T"]) -> Heads:
        return cudnn(query, key, value, mask, window)

    branches = {"cpu": on_cpu}
    length, head_size = query.shape[2:]
    if kernels and length * -(-head_size // LANES) * LANES <= MOST_OF_TPU and has_plugin("tpu"):
        branches["tpu"] = on_tpu
    fits_cudnn = dtype == jnp.bfloat16 and head_size <= MOST_OF_CUDNN and head_size % 8 == 0
    if kernels and fits_cudnn and has_plugin("cuda"):
        branches["cuda"] = on_gpu
    return for_platform(query, key, value, attention_mask, default=otherwise, **branches)


def has_plugin(platform: str) -> bool:
    """Whether programs can be compiled for a platform."""
    return any(map(installed, PLUGINS[platform]))


def cudnn(query: Heads, key: Heads, value: Heads, attention_mask: Int[Array, "B T"], window: int | None) -> Heads:
    """By cuDNN, in bfloat16. It takes lengths and no masks: a text with padding in its midst gives NaN.

    cuDNN's windows end at the query's own place, and JAX passes it no others. So the queries of a local layer go
    `window` places further back: from place i + w, the 2 w + 1 keys up to there are those of the places i − w to i + w.
    """
    query, key, value = (x.astype(jnp.bfloat16).swapaxes(1, 2) for x in (query, key, value))
    seen = attention_mask > 0
    lengths = jnp.sum(seen, axis=1, dtype=jnp.int32)
    late = 0
    local: dict[str, Any] = {}
    if window is not None and window < query.shape[1]:  # a wider one leaves nothing out
        late = window
        local = {"query_seq_lengths": lengths + late, "is_causal": True, "local_window_size": (2 * late, 0)}
        query = jnp.pad(query, ((0, 0), (late, 0), (0, 0), (0, 0)))
        key, value = (jnp.pad(x, ((0, 0), (0, late), (0, 0), (0, 0))) for x in (key, value))
    found = jax.nn.dot_product_attention(
        query, key, value, key_value_seq_lengths=lengths, implementation="cudnn", **local
    )
    on_the_right = jnp.all(seen[:, 1:] <= seen[:, :-1], axis=1)
    return jnp.where(on_the_right[:, None, None, None], found[:, late:].swapaxes(1, 2), jnp.nan)
