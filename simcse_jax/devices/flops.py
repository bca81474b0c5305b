"""FLOPs: of a program's matrix products, and those that a device computes in a second at its peak."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

# Peaks in bfloat16, FLOP/s. TPUs: from cloud.google.com/tpu/docs, the pages v4, v5e, v5p and v6e. GPUs: NVIDIA's data
# sheets of A100, H100 (SXM), H200 (SXM) and B200 (HGX), without sparsity.
PEAKS = {
    "v4": 275e12,
    "v5e": 197e12,
    "v5p": 459e12,
    "v6e": 918e12,
    "a100": 312e12,
    "h100": 989e12,
    "h200": 989e12,
    "b200": 2250e12,
}
# JAX's names of these devices. Cards of the same name with other clocks, as H100 PCIe and H200 NVL, are not among them.
KINDS = {
    "TPU v4": "v4",
    "TPU v5 lite": "v5e",
    "TPU v5e": "v5e",
    "TPU v5": "v5p",
    "TPU v5p": "v5p",
    "TPU v6 lite": "v6e",
    "TPU v6e": "v6e",
    "NVIDIA A100-SXM4-40GB": "a100",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA A100-PCIE-40GB": "a100",
    "NVIDIA A100 80GB PCIe": "a100",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H200": "h200",
    "NVIDIA B200": "b200",
}

# Attention by cuDNN: the products of (T, d) and (d, T) matrices, or of as many FLOPs, for each head of a text.
CUDNN = {"dot_product_attention_fwd_wrapper": 2, "dot_product_attention_bwd_wrapper": 5}

# The time of a product with no, one and two float32 inputs, in that of a bfloat16 product, by its precision.
Passes = Mapping[str, tuple[float, float, float]]
# A TPU makes so many bfloat16 products of one; by default always one.
TPU_PASSES: Passes = {"HIGHEST": (1, 3, 6), "HIGH": (1, 2, 3), "DEFAULT": (1, 1, 1)}


def product_flops(jaxpr: Any, passes: Passes = TPU_PASSES, platform: str = "") -> Counter[float]:
    """FLOPs of all matrix products, by the number of bfloat16 passes that a TPU makes of each.

    Scans are multiplied out; of several branches that of the platform counts, or the most
    expensive one. The body of a `shard_map` counts once: the work of one device.

    Args:
      platform: the one that the program is compiled for, as JAX calls it: cpu, cuda or tpu.
    """
    flops: Counter[float] = Counter()
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            shape = equation.invars[0].aval.shape
            contracted = math.prod(shape[axis] for axis in params["dimension_numbers"][0][0])
            flops[_passes(equation, passes)] += 2 * math.prod(equation.outvars[0].aval.shape) * contracted
            continue
        if name in CUDNN:
            batch, tokens, heads, size = equation.invars[0].aval.shape
            products = 2 * batch * heads * tokens * equation.invars[1].aval.shape[1] * size
            flops[passes["DEFAULT"][0]] += CUDNN[name] * products
            continue
        values = [operand for value in params.values() for operand in (value if isinstance(value, tuple) else (value,))]
        inner = [product_flops(value, passes, platform) for value in values if hasattr(value, "eqns")]
        if name == "cond":
            inner = [_chosen_branch(inner, params.get("branches_platforms"), platform)]
        for part in inner:
            flops.update({width: count * params.get("length", 1) for width, count in part.items()})
    return flops


def _chosen_branch(branches: list[Counter[float]], platforms: Any, platform: str) -> Counter[float]:
    """The branch of a conditional for the platform, if the platform decides; otherwise the most expensive one."""
    if platforms and platform:
        return next(
            branch for branch, names in zip(branches, platforms, strict=True) if names is None or platform in names
        )
    return max(branches, key=Counter.total)


def _passes(product: Any, passes: Passes) -> float:
    inputs = sum(variable.aval.dtype == np.float32 for variable in product.invars)
    precision = product.params["precision"]
    sides = precision if isinstance(precision, tuple) else (precision,)
    return max(passes["DEFAULT" if side is None else side.name][inputs] for side in sides)


def peak(device: jax.Device) -> float | None:
    """The device's FLOP/s in bfloat16; None where they are not known, as on a CPU."""
    return PEAKS.get(KINDS.get(device.device_kind, ""))
