"""From hidden states to one vector per sentence."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from simcse_jax.choices import MASK_TOKEN
from simcse_jax.models.arrays import AnyArray

FIRST_TOKEN = ("cls", "cls_before_pooler")  # poolers that read nothing but the last layer's first token
JOIN = "+"  # between the poolers of a model that concatenates their vectors, such as cls+avg
HiddenStates = Sequence[Float[Array, "B _ D"]]  # of L + 1 layers; the last may have only the first token
Mask = Int[AnyArray, "B T"]


def pool(
    hidden_states: HiddenStates,
    attention_mask: Mask,
    pooler: str,
    skipped: int = 0,
    is_mask_token: Bool[Array, "B T"] | None = None,
) -> Float[Array, "B _D"]:
    """Pools L + 1 hidden states of shape (B, T, D) into (B, D), in float32.

    `cls` and `cls_before_pooler` take the last layer's first token (they differ in the head, which comes
    after), `avg` the mean of the last layer over a sentence's tokens, `avg_top2` the same mean of the last two
    layers, `avg_first_last` of layer 1 and the last layer, `avg_static_last` of the embedding layer's output (the sum
    of word, position and type embeddings, normalized: hidden state 0) and the last layer.

    SimCSE's paper calls the last one "first-last average": BERT-base's 56.70 in its Table 5 is made with it, as its
    README says. Its code was then changed to layer 1, which gives 60.73 (its issue 285). BERT-flow's `avg-last-2` and
    whitening's own code take layer 1 too. `max` takes each dimension's maximum
    in the last layer over a sentence's tokens ("On Isotropy and Learning Dynamics of Contrastive-based
    Sentence Representation Learning", appendix D). `avg_sqrt`, `avg_weighted` and `last` are sentence-transformers'
    `mean_sqrt_len_tokens`, `weightedmean` and `lasttoken`. `mask_token` takes the last layer's vector at the mask token
    (PromptBERT), or the mean of several; zeros where there is none.

    Args:
      pooler: one of `choices.POOLERS`, or K of them joined by +, whose vectors are concatenated to (B, K D).
      skipped: tokens at the beginning of every sentence that the poolers leave out, those of a prompt.
      is_mask_token: which tokens are mask tokens, for `mask_token`.
    """
    names = pooler.split(JOIN)
    for name in names:
        if name not in POOLER_FUNCTIONS:
            raise ValueError(f"pooler {name!r} is not one of {', '.join(POOLER_FUNCTIONS)}")
    functions = POOLER_FUNCTIONS
    if skipped:
        attention_mask = attention_mask * (jnp.arange(attention_mask.shape[1]) >= skipped)
        functions = functions | AFTER_PROMPT
    masks = dict.fromkeys(names, attention_mask)
    if MASK_TOKEN in names:
        assert is_mask_token is not None
        masks[MASK_TOKEN] = attention_mask * is_mask_token
    vectors = [functions[name](hidden_states, masks[name]) for name in names]
    return vectors[0] if len(vectors) == 1 else jnp.concatenate(vectors, axis=1)


def first_token(hidden: Float[Array, "B _ D"]) -> Float[Array, "B D"]:
    """The first token's vector."""
    return hidden.astype(jnp.float32)[:, 0]


def mean(hidden: Float[Array, "B T D"], attention_mask: Mask) -> Float[Array, "B D"]:
    """The mean over a sentence's tokens."""
    mask = attention_mask[:, :, None].astype(jnp.float32)
    return jnp.sum(hidden.astype(jnp.float32) * mask, axis=1) / jnp.maximum(jnp.sum(mask, axis=1), 1)


def mean_sqrt(hidden: Float[Array, "B T D"], attention_mask: Mask) -> Float[Array, "B D"]:
    """The sum over a sentence's n tokens, divided by √n."""
    count = jnp.sum(attention_mask, axis=1, keepdims=True).astype(jnp.float32)
    return mean(hidden, attention_mask) * jnp.sqrt(count)


def weighted_mean(hidden: Float[Array, "B T D"], attention_mask: Mask) -> Float[Array, "B D"]:
    """The mean over a sentence's tokens; the n-th token, from 1, has the weight n."""
    weights = (attention_mask * jnp.arange(1, attention_mask.shape[1] + 1))[:, :, None].astype(jnp.float32)
    return jnp.sum(hidden.astype(jnp.float32) * weights, axis=1) / jnp.maximum(jnp.sum(weights, axis=1), 1)


def last_token(hidden: Float[Array, "B T D"], attention_mask: Mask) -> Float[Array, "B D"]:
    """The vector of a sentence's last token; zeros where the mask has none."""
    last = attention_mask.shape[1] - 1 - jnp.argmax(jnp.flip(attention_mask, 1), axis=1)
    return _where((jnp.arange(attention_mask.shape[1]) == last[:, None]) & (attention_mask != 0), hidden)


def first_unmasked(hidden: Float[Array, "B T D"], attention_mask: Mask) -> Float[Array, "B D"]:
    """The vector of the first token that the mask has; of the first of all where it has none."""
    first = jnp.argmax(attention_mask, axis=1)
    return _where(jnp.arange(attention_mask.shape[1]) == first[:, None], hidden)


def _where(is_it: Array, hidden: Float[Array, "B T D"]) -> Float[Array, "B D"]:
    return jnp.sum(jnp.where(is_it[:, :, None], hidden.astype(jnp.float32), 0.0), axis=1)


def maximum(hidden: Float[Array, "B T D"], attention_mask: Mask) -> Float[Array, "B D"]:
    """Each dimension's maximum over a sentence's tokens."""
    return jnp.max(hidden.astype(jnp.float32), axis=1, where=attention_mask[:, :, None] != 0, initial=-jnp.inf)


def midway(first: Float[Array, "B T D"], second: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """The mean of two layers."""
    return (first.astype(jnp.float32) + second.astype(jnp.float32)) / 2


# By the names in `choices.POOLERS`.
POOLER_FUNCTIONS: dict[str, Callable[[HiddenStates, Mask], Float[Array, "B D"]]] = {
    "cls": lambda layers, mask: first_token(layers[-1]),
    "cls_before_pooler": lambda layers, mask: first_token(layers[-1]),
    "avg": lambda layers, mask: mean(layers[-1], mask),
    "avg_top2": lambda layers, mask: mean(midway(layers[-2], layers[-1]), mask),
    "avg_first_last": lambda layers, mask: mean(midway(layers[1], layers[-1]), mask),
    "avg_static_last": lambda layers, mask: mean(midway(layers[0], layers[-1]), mask),
    "max": lambda layers, mask: maximum(layers[-1], mask),
    "avg_sqrt": lambda layers, mask: mean_sqrt(layers[-1], mask),
    "avg_weighted": lambda layers, mask: weighted_mean(layers[-1], mask),
    "last": lambda layers, mask: last_token(layers[-1], mask),
    MASK_TOKEN: lambda layers, mask: mean(layers[-1], mask),
}
# In their place where the tokens of a prompt are left out.
AFTER_PROMPT: dict[str, Callable[[HiddenStates, Mask], Float[Array, "B D"]]] = {
    name: lambda layers, mask: first_unmasked(layers[-1], mask) for name in FIRST_TOKEN
}
