"""Large batches in little memory: functions of rows computed in chunks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def in_chunks(function: Callable[..., Any], size: int, *rows: Any) -> Any:
    """`function(*rows)`, `size` rows at a time; the backward pass computes each chunk again.

    Intermediate results are kept for one chunk only, forward and backward (GradCache, Gao et al. 2021,
    arXiv:2101.06983). If no row's result depends on other rows, chunks change nothing but the rounding of sums.

    Args:
      function: from pytrees of arrays with a common first axis to a pytree with the same.
      size: rows in a chunk; the last chunk may be smaller. 0, or at least the number of rows: all at once.
    """
    count = jax.tree.leaves(rows)[0].shape[0]
    if not 0 < size < count:
        return function(*rows)
    function = jax.checkpoint(function, prevent_cse=False)
    whole = count - count % size
    chunks = jax.tree.map(lambda x: x[:whole].reshape(-1, size, *x.shape[1:]), rows)
    result = jax.lax.map(lambda chunk: function(*chunk), chunks)
    result = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), result)
    if whole == count:
        return result
    rest = function(*jax.tree.map(lambda x: x[whole:], rows))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), result, rest)
