"""The masked-language-model head of all encoders: dense, activation, norm, and the word embeddings again.

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

    Args:
      hidden: (P, D) last hidden states of the positions to predict; P may be more than one axis.
      head: `dense.kernel` W (D, E), `dense.bias` b, `norm.scale` and `norm.bias` (E,), `bias` c (V,). Some encoders'
        heads lack b and the norm's bias.
      word_embedding: E (V, E), the encoder's own: the decoder is tied to it.
      config: of the encoder, whose norm the head has, and whose `activation`.
    """
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
    head["dense.kernel"] = 0.02 * jax.random.normal(key, head["dense.kernel"].shape, jnp.float32)
    head["norm.scale"] += 1
    return head
