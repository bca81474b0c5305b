"""From hidden states to one vector a sentence."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from simcse_jax.models.config import POOLERS

FIRST_TOKEN = ("cls", "cls_before_pooler")  # poolers that read nothing but the last layer's first token


def pool(hidden_states: Sequence[jax.Array], attention_mask: jax.Array, pooler: str) -> jax.Array:
    """Pools L + 1 hidden states of shape (B, T, D) into (B, D), in float32.

    `cls` and `cls_before_pooler` take the last layer's first token (they differ in the head, which comes
    after), `avg` the mean of the last layer over a sentence's tokens, `avg_top2` that of the last two
    layers, `avg_first_last` that of the first and the last layer. First means the output of layer 1, as the
    reference code has it since its correction, not the embedding layer's. `max` takes each dimension's maximum
    of the last layer over a sentence's tokens ("On Isotropy and Learning Dynamics of Contrastive-based
    Sentence Representation Learning", appendix D).
    """
    first, second_last, last = (hidden_states[layer].astype(jnp.float32) for layer in (1, -2, -1))
    if pooler in FIRST_TOKEN:
        return last[:, 0]
    if pooler == "max":
        return jnp.max(last, axis=1, where=attention_mask[:, :, None] != 0, initial=-jnp.inf)
    if pooler == "avg":
        tokens = last
    elif pooler == "avg_top2":
        tokens = (second_last + last) / 2
    elif pooler == "avg_first_last":
        tokens = (first + last) / 2
    else:
        raise ValueError(f"pooler {pooler!r} is not one of {', '.join(POOLERS)}")
    mask = attention_mask[:, :, None].astype(tokens.dtype)
    return jnp.sum(tokens * mask, axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)
