"""The machine's own peak: the fastest matrix product of a few shapes, as JAX and as PyTorch compute it.

Two contenders (see `benchmarks.contender`) whose work is floating-point operations. float32 is float32 on GPUs and TPUs
too, as the training step has it; of bfloat16, results in float32 and in bfloat16 are tried.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.contender import Done, Round

ROWS = {"cpu": (1024, 2048, 4096), "other": (4096, 8192, 16384)}
COLUMNS = {"cpu": (1024, 1024), "other": (8192, 8192)}  # of the left and of the right factor
SECONDS = 0.1  # of each product in a round


def jax_products(dtype: str) -> Round:
    """(n, k) @ (k, m) by XLA."""
    import jax
    import jax.numpy as jnp

    kind = "cpu" if jax.default_backend() == "cpu" else "other"

    def product(result: Any) -> Callable[..., jax.Array]:
        return jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest", preferred_element_type=result))

    products = [product(jnp.float32)] if dtype == "float32" else [product(jnp.float32), product(jnp.bfloat16)]
    inner, outer = COLUMNS[kind]
    runs = []
    for rows in ROWS[kind]:
        a, b = (jnp.asarray(factor, dtype) for factor in _factors(rows, inner, outer))
        runs += [(2 * rows * inner * outer, functools.partial(multiply, a, b)) for multiply in products]
    return _fastest(runs, jax.block_until_ready)


def torch_products(dtype: str) -> Round:
    """The same by PyTorch."""
    import torch

    kind, device = ("other", "cuda") if torch.cuda.is_available() else ("cpu", "cpu")
    inner, outer = COLUMNS[kind]
    runs = []
    for rows in ROWS[kind]:
        a, b = (torch.from_numpy(factor).to(device, getattr(torch, dtype)) for factor in _factors(rows, inner, outer))
        runs.append((2 * rows * inner * outer, functools.partial(torch.matmul, a, b)))
    return _fastest(runs, lambda _: torch.cuda.synchronize() if device == "cuda" else None)


def _factors(rows: int, inner: int, outer: int) -> tuple[np.ndarray, np.ndarray]:
    """Not ones: a GPU multiplies those faster."""
    generator = np.random.default_rng(0)
    return generator.random((rows, inner), np.float32), generator.random((inner, outer), np.float32)


def _fastest(runs: list[tuple[int, Callable[[], Any]]], wait: Callable[[Any], Any]) -> Round:
    """A round tries each for a while; its seconds are those of one product of the fastest."""
    for _, run in runs:
        wait(run())

    def do_round() -> Done:
        tried = []
        for flops, run in runs:
            count, together, started, result = 0, 1, time.perf_counter(), None
            while (seconds := time.perf_counter() - started) < SECONDS or not count:
                for _ in range(together):
                    result = run()
                wait(result)
                count += together
                together = 10  # dispatched together, so that a GPU does not wait for Python; one may take seconds
            tried.append((flops, seconds / count))
        flops, seconds = max(tried, key=lambda one: one[0] / one[1])
        return Done(flops, seconds=seconds)

    return do_round
