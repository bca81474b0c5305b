"""The classification objective of SBERT, the supervised baseline of the SimCSE papers."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.objective import Parameters

KERNEL = "softmax_nli.kernel"  # the classifier's name in checkpoints


def softmax_nli(
    first: Float[AnyArray, "B D"],
    second: Float[AnyArray, "B D"],
    label: Int[AnyArray, " B"],
    kernel: Float[AnyArray, "3*D C"],
) -> Float[Array, " B"]:
    """SBERT's softmax objective on NLI labels, one loss per pair.

        o = softmax(W (u, v, |u − v|)),   ℓ = −log o_label

    Reimers & Gurevych 2019 (arXiv:1908.10084), Section 3, "Classification Objective Function": no bias. W is
    discarded after training. u are premises, v hypotheses, the labels integers below C, and the kernel is Wᵀ; C = 3 for
    entailment, neutral and contradiction.
    """
    logits = jnp.concatenate([first, second, jnp.abs(first - second)], axis=1) @ kernel
    return jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, label[:, None], axis=1)[:, 0]


def _fresh(encoder: EncoderConfig, key: Key[Array, ""]) -> dict[str, Array]:
    return {KERNEL: 0.02 * jax.random.normal(key, (3 * encoder.sentence_size, 3), jnp.float32)}


class SoftmaxNLI(declarations.SoftmaxNLI):
    """SBERT's classifier, which is trained with the encoder."""

    parameters = Parameters(_fresh, stream=0x68656167)

    def loss(self, embedded: Embedded) -> Float[Array, ""]:
        """The mean of `softmax_nli` over the batch."""
        assert embedded.label is not None  # it declares that it needs them
        return embedded.mean(softmax_nli(*embedded.pair, embedded.label, embedded.params[KERNEL]))
