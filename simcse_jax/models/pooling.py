"""From hidden states to one vector per sentence."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray

FIRST_TOKEN = ("cls", "cls_before_pooler")  # poolers that read nothing but the last layer's first token
HiddenStates = Sequence[Float[Array, "B _ D"]]  # of L + 1 layers; the last may have only the first token
Mask = Int[AnyArray, "B T"]


def pool(hidden_states: HiddenStates, attention_mask: Mask, pooler: str) -> Float[Array, "B D"]:
    """Pools L + 1 hidden states of shape (B, T, D) into (B, D), in float32.

    `cls` and `cls_before_pooler` take the last layer's first token (they differ in the head, which comes
    after), `avg` the mean of the last layer over a sentence's tokens, `avg_top2` the same mean of the last two
    layers, `avg_first_last` of the first and the last layer. The first layer is the output of layer 1, as in
    the reference code since its correction, not the embedding layer. `max` takes each dimension's maximum
    in the last layer over a sentence's tokens ("On Isotropy and Learning Dynamics of Contrastive-based
    Sentence Representation Learning", appendix D).

    Raises:
      ValueError: for an unknown pooler.
    """
    if pooler not in POOLER_FUNCTIONS:
        raise ValueError(f"pooler {pooler!r} is not one of {', '.join(POOLER_FUNCTIONS)}")
    return POOLER_FUNCTIONS[pooler](hidden_states, attention_mask)


def first_token(hidden: Float[Array, "B _ D"]) -> Float[Array, "B D"]:
    """The first token's vector."""
    return hidden.astype(jnp.float32)[:, 0]


def mean(hidden: Float[Array, "B T D"], attention_mask: Mask) -> Float[Array, "B D"]:
    """The mean over a sentence's tokens."""
    mask = attention_mask[:, :, None].astype(jnp.float32)
    return jnp.sum(hidden.astype(jnp.float32) * mask, axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)


def maximum(hidden: Float[Array, "B T D"], attention_mask: Mask) -> Float[Array, "B D"]:
    """Each dimension's maximum over a sentence's tokens."""
    return jnp.max(hidden.astype(jnp.float32), axis=1, where=attention_mask[:, :, None] != 0, initial=-jnp.inf)


def midway(one: Float[Array, "B T D"], other: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """The mean of two layers."""
    return (one.astype(jnp.float32) + other.astype(jnp.float32)) / 2


# By the names in `models.config.POOLERS`.
POOLER_FUNCTIONS: dict[str, Callable[[HiddenStates, Mask], Float[Array, "B D"]]] = {
    "cls": lambda layers, mask: first_token(layers[-1]),
    "cls_before_pooler": lambda layers, mask: first_token(layers[-1]),
    "avg": lambda layers, mask: mean(layers[-1], mask),
    "avg_top2": lambda layers, mask: mean(midway(layers[-2], layers[-1]), mask),
    "avg_first_last": lambda layers, mask: mean(midway(layers[1], layers[-1]), mask),
    "max": lambda layers, mask: maximum(layers[-1], mask),
}
