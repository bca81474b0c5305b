"""The embeddings of views, each encoding done once."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.objectives.views import Pass, View


def embed(
    views: Sequence[View],
    encode: Callable[[Pass, list[int], list[int], list[int]], jax.Array],
    noise: Callable[[int, tuple[int, ...]], jax.Array],
) -> Float[Array, "V B D"]:
    """(V, B, D) embeddings of the views; an encoding that several views need is done once.

    Args:
      views: V of them.
      encode: encode(pass, columns, masks, changes) -> (P, B, D), P columns under as many masks and changes, by their
        numbers, which do not count in a pass without masks or without a change.
      noise: noise(number, (B, D)), which is added to a noisy view.
    """
    passes: dict[Pass, dict[tuple[int, int, int], None]] = {}
    for view in views:
        for draw in view.draws:
            passes.setdefault(view.encoded_in, {})[draw] = None
    encoded: dict[tuple[Pass, tuple[int, int, int]], jax.Array] = {}
    for each, wanted in passes.items():
        columns, masks, changes = (list(part) for part in zip(*wanted, strict=True))
        embeddings = encode(each, columns, masks, changes)
        encoded |= {(each, key): embedding for key, embedding in zip(wanted, embeddings, strict=True)}

    def finish(view: View) -> jax.Array:
        parts = [encoded[view.encoded_in, draw] for draw in view.draws]
        embedding = parts[0] if len(parts) == 1 else jnp.mean(jnp.stack(parts), axis=0)
        return embedding if view.noise is None else embedding + noise(view.noise, embedding.shape)

    return jnp.stack([finish(view) for view in views])
