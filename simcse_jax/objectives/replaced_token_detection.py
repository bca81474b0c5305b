"""Replaced-token detection, DiffCSE's objective in addition to a contrastive one."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.objective import Embedded, Needs, Objective, Parameters

NAME = "replaced_token_detection"  # in `config.objective`
DISCRIMINATOR, HEAD = "discriminator.", f"{NAME}."  # the names of its parameters start with these


def replaced_token_detection(
    hidden: Float[AnyArray, "B T D"],
    replaced: Bool[AnyArray, "B T"],
    kernel: Float[AnyArray, "D 2"],
    bias: Float[AnyArray, " 2"],
) -> Float[Array, "B T"]:
    """The cross-entropy of a decision for each token: is it the original, or was it replaced?

        ℓ_t = −log softmax(W h_t + b)_{[x″_t ≠ x_t]}

    ELECTRA's objective (Clark et al. 2020, arXiv:2003.10555) conditioned on a sentence embedding: Chuang et al. 2022
    (arXiv:2204.10298), section 3. The discriminator that makes h reads the embedding of the original sentence in the
    place of its first token.

    The objective is the mean over all real tokens of the global batch, the first and the last of a sentence included.
    DiffCSE's code takes the mean over all positions of its padded batch. Padding has the label "original" there, so
    that loss depends on how much of a batch is padding. Where padding adds nothing to the sum, it is ours times the
    share of positions that are tokens: λ = 0.005 there is about 0.005 times this share here. ⚠ The share is that of
    the authors' data and batches; the recipe keeps λ as the paper has it.

    Args:
      hidden: (B, T, D) last hidden states of the discriminator.
      replaced: (B, T) which tokens are not the original ones.
      kernel: (D, 2) Wᵀ.
      bias: (2,) b.

    Returns:
      (B, T) losses, float32; those of padding mean nothing.
    """
    scores = jnp.asarray(hidden, jnp.float32) @ kernel + bias
    return jax.nn.logsumexp(scores, axis=2) - jnp.where(replaced, scores[..., 1], scores[..., 0])


def _term(embedded: Embedded, **_: Any) -> Float[Array, ""]:  # the generator's pass has read the other fields
    return embedded.mean_of_tokens(NAME)


def _fresh(encoder: EncoderConfig, key: Key[Array, ""]) -> dict[str, jax.Array]:
    """The linear layer as PyTorch initializes one: U(±1/√D), with its bias."""
    bound, (one, other) = encoder.hidden_size**-0.5, jax.random.split(key)
    return {
        f"{HEAD}kernel": jax.random.uniform(one, (encoder.hidden_size, 2), jnp.float32, -bound, bound),
        f"{HEAD}bias": jax.random.uniform(other, (2,), jnp.float32, -bound, bound),
    }


OBJECTIVE = Objective(
    _term, Parameters(_fresh, stream=0x68656168, copy_of_encoder=DISCRIMINATOR), Needs(replaced_tokens=True)
)
