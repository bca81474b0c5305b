"""Masked language modelling, SimCSE's auxiliary objective. Shapes: V words, P predictions."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from simcse_jax.devices.chunks import in_chunks
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.language_model import fresh_head, logits
from simcse_jax.models.parameters import LANGUAGE_MODEL
from simcse_jax.objectives import info_nce
from simcse_jax.objectives.objective import Embedded, Needs, Objective, Parameters

NAME = "mlm"  # in `config.objective`


def masked_lm(
    hidden: Float[AnyArray, "P D"],
    labels: Int[AnyArray, " P"],
    head: Mapping[str, AnyArray],
    word_embedding: Float[AnyArray, "V E"],
    *,
    activation: Callable[[jax.Array], jax.Array],
    eps: float,
) -> Float[Array, " P"]:
    """The cross-entropy of the masked words, one per prediction, in float32.

        ℓ_p = −log softmax( E LayerNorm(act(W h_p + b)) + b_V )_{label_p}

    The language-model head of BERT (Devlin et al. 2019, task 1 of Section 3.1) and RoBERTa, whose decoder E is tied to
    the word embeddings; SimCSE adds its mean with weight λ (Appendix A, Table D.2).

    Args:
      hidden: (P, D) last hidden states at the positions to predict.
      labels: (P,) the original tokens.
      head: dense.kernel (D, E), dense.bias, norm.scale, norm.bias (E,), bias (V,).
      word_embedding: (V, E) E; most encoders' tables are as wide as the hidden states.
      activation: the encoder's.
      eps: added to the variance in the norm.

    Returns:
      (P,) losses.
    """

    def losses(hidden: Float[AnyArray, "R D"], labels: Int[AnyArray, " R"]) -> Float[Array, " R"]:
        scores = logits(hidden, head, word_embedding, activation=activation, eps=eps)
        return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]

    return in_chunks(losses, max(1, info_nce.SIMILARITIES // len(word_embedding)), hidden, labels)


def _term(embedded: Embedded) -> Float[Array, ""]:
    return embedded.mean_of_tokens(NAME)


def _fresh(encoder: EncoderConfig, key: Key[Array, ""]) -> dict[str, jax.Array]:
    return {LANGUAGE_MODEL + name: value for name, value in fresh_head(encoder, key).items()}


HEAD = Parameters(_fresh, stream=0x68656166, pretrained="language-model head")
OBJECTIVE = Objective(_term, HEAD, Needs(masked_tokens=True))
