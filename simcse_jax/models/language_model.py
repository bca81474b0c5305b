"""The language-model heads: of encoders dense, activation, norm, and the word embeddings again; of decoders words.

Shapes: P positions, D hidden size, E columns of the word embeddings (D in most encoders), V words.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.nonlinearities import ACTIVATION_FUNCTIONS, Activation
from simcse_jax.models.norm import normalized


def logits(
    hidden: Float[AnyArray, "*P D"],
    head: Mapping[str, Float[AnyArray, "..."]],
    word_embedding: Float[AnyArray, "V E"],
    config: EncoderConfig,
) -> Float[Array, "*P V"]:
    """Scores of all words at P positions: norm(activation(h W + b)) Eᵀ + c (Devlin et al. 2019, as in their code).

    A decoder scores the word after the position: h Eᵀ, or h W with words W of its head's own.

    Args:
      hidden: (P, D) last hidden states of the positions to predict; P may be more than one axis.
      head: `dense.kernel` W (D, E), `dense.bias` b, `norm.scale` and `norm.bias` (E,), `bias` c (V,). Some encoders'
        heads lack b and the norm's bias. Of decoders `kernel` W (D, V), or nothing.
      word_embedding: E (V, E), the encoder's own: the decoder is tied to it.
      config: of the encoder, whose norm the head has, and whose `activation`.
    """
    if config.guesses_next:
        words = word_embedding.T if config.tied_head else head["kernel"]
        return jnp.asarray(hidden, jnp.float32) @ words.astype(jnp.float32)
    x = jnp.asarray(hidden, jnp.float32) @ head["dense.kernel"]
    if "dense.bias" in head:
        x += head["dense.bias"]
    x = normalized(activation(config)(x), head["norm.scale"], head.get("norm.bias"), config)
    return x @ word_embedding.astype(jnp.float32).T + head["bias"]


def activation(config: EncoderConfig) -> Activation:
    """The head's activation: the encoder's, if the model type has none of its own."""
    return ACTIVATION_FUNCTIONS[config.language_model_act or config.hidden_act]


def shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of a head's arrays, by our names."""
    size = config.table_size
    if config.guesses_next:
        return {} if config.tied_head else {"kernel": (size, config.vocab_size)}
    return {
        "dense.kernel": (config.hidden_size, size),
        **({"dense.bias": (size,)} if config.language_model_bias else {}),
        "norm.scale": (size,),
        **({"norm.bias": (size,)} if config.norm_bias else {}),
        "bias": (config.vocab_size,),
    }


def fresh_head(config: EncoderConfig, key: Key[Array, ""]) -> dict[str, Float[Array, "..."]]:
    """A head with BERT's initialization: weights N(0, 0.02²), biases 0, the norm's scale 1; float32."""
    head = {name: jnp.zeros(shape, jnp.float32) for name, shape in shapes(config).items()}
    for name, value in head.items():
        if name.endswith("kernel"):
            head[name] = 0.02 * jax.random.normal(key, value.shape, jnp.float32)
        elif name == "norm.scale":
            head[name] = value + 1
    return head
