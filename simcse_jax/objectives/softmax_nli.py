"""The classification objective of SBERT, the supervised baseline of the SimCSE papers."""

import jax
import jax.numpy as jnp


def softmax_nli(first: jax.Array, second: jax.Array, label: jax.Array, kernel: jax.Array) -> jax.Array:
    """SBERT's softmax objective on NLI labels, one loss a pair.

        o = softmax(W (u, v, |u − v|)),   ℓ = −log o_label

    Reimers & Gurevych 2019 (arXiv:1908.10084), Section 3, "Classification Objective Function": no bias. W is thrown
    away after training.

    Args:
      first: (B, D) u, premises.
      second: (B, D) v, hypotheses.
      label: (B,) integers below C, the class of each pair.
      kernel: (3D, C) W transposed; C = 3 for entailment, neutral and contradiction.

    Returns:
      (B,) losses.
    """
    logits = jnp.concatenate([first, second, jnp.abs(first - second)], axis=1) @ kernel
    return jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, label[:, None], axis=1)[:, 0]
