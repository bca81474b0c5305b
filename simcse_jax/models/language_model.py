"""The masked-language-model head of BERT, RoBERTa and MPNet: dense, activation, norm, the word embeddings once more."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.encoder import ACTIVATIONS
from simcse_jax.models.nonlinearities import layer_norm

# Ours: the tensors of BERT and of the other two that can be it, the first one there counts.
SOURCES = {
    "dense.kernel": ("cls.predictions.transform.dense.weight", "lm_head.dense.weight"),
    "dense.bias": ("cls.predictions.transform.dense.bias", "lm_head.dense.bias"),
    "norm.scale": ("cls.predictions.transform.LayerNorm.weight", "lm_head.layer_norm.weight"),
    "norm.bias": ("cls.predictions.transform.LayerNorm.bias", "lm_head.layer_norm.bias"),
    "bias": ("cls.predictions.bias", "cls.predictions.decoder.bias", "lm_head.bias", "lm_head.decoder.bias"),
}
DECODERS = ("cls.predictions.decoder.weight", "lm_head.decoder.weight")
WORDS = "embeddings.word_embeddings.weight"


def logits(
    hidden: jax.Array,
    head: Mapping[str, jax.Array],
    word_embedding: jax.Array,
    *,
    activation: Callable[[jax.Array], jax.Array],
    eps: float,
) -> jax.Array:
    """Scores of all words at P positions: norm(activation(h W + b)) Eᵀ + c (Devlin et al. 2019, as in their code).

    Args:
      hidden: (P, D) last hidden states of the positions to predict.
      head: `dense.kernel` W (D, D), `dense.bias` b, `norm.scale` and `norm.bias` (D,), `bias` c (V,).
      word_embedding: E (V, D), the encoder's own: the decoder is tied to it.
      activation: see `activation`.
      eps: of the norm, the encoder's.

    Returns:
      (P, V) float32.
    """
    x = activation(hidden.astype(jnp.float32) @ head["dense.kernel"] + head["dense.bias"])
    x = layer_norm(x, head["norm.scale"], head["norm.bias"], eps)
    return x @ word_embedding.astype(jnp.float32).T + head["bias"]


def activation(config: EncoderConfig) -> Callable[[jax.Array], jax.Array]:
    """The head's activation: BERT takes the encoder's, the others the exact GELU whatever the encoder's is."""
    return ACTIVATIONS[config.hidden_act if config.model_type == "bert" else "gelu"]


def shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of a head's arrays, by our names."""
    size = config.hidden_size
    return {
        "dense.kernel": (size, size),
        "dense.bias": (size,),
        "norm.scale": (size,),
        "norm.bias": (size,),
        "bias": (config.vocab_size,),
    }


def fresh_head(config: EncoderConfig, key: jax.Array) -> dict[str, jax.Array]:
    """A head with BERT's initialization: weights N(0, 0.02²), biases 0, the norm's scale 1; float32."""
    head = {name: jnp.zeros(shape, jnp.float32) for name, shape in shapes(config).items()}
    head["dense.kernel"] = 0.02 * jax.random.normal(key, head["dense.kernel"].shape, jnp.float32)
    head["norm.scale"] += 1
    return head


def read_head(tensors: Mapping[str, np.ndarray], config: EncoderConfig) -> dict[str, np.ndarray] | None:
    """The language-model head of a checkpoint, as `logits` takes it.

    Args:
      tensors: names as `huggingface.normalize_names` leaves them.
      config: what shapes to expect.

    Returns:
      float32 arrays, the dense kernel transposed. None for a checkpoint without a head, with half of one, of other
      shapes than `config` has, or with a decoder of its own: `logits` ties it to the word embeddings.
    """
    found = {name: next((source for source in sources if source in tensors), None) for name, sources in SOURCES.items()}
    if None in found.values():
        return None
    if any(name in tensors and not np.array_equal(tensors[name], tensors.get(WORDS)) for name in DECODERS):
        return None
    head = {}
    for name, shape in shapes(config).items():
        value = tensors[found[name]]
        if value.shape != shape:  # e.g. padded to more words than there are
            return None
        head[name] = np.ascontiguousarray(value.T if name.endswith("kernel") else value, np.float32)
    return head
