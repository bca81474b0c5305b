"""The objective of contrastive tension (CT): whether two sentences are the same one."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded


def contrastive_tension(
    first: Float[AnyArray, "B D"], second: Float[AnyArray, "B D"], is_positive: Bool[AnyArray, " B"]
) -> Float[Array, " B"]:
    """Binary cross-entropy of dot products, one loss per pair.

        ℓ(x, y) = −log σ(f₁(x) · f₂(y))   if x = y,      −log(1 − σ(f₁(x) · f₂(y)))   otherwise

    Carlsson et al. 2021, "Semantic Re-tuning with Contrastive Tension", Section 3: plain dot products of mean-pooled
    last layers. f₁ and f₂ are two encoders that start from the same weights (`model.dual_encoder`). Our loss is the
    mean over the pairs, as in the released code. sentence-transformers' `ContrastiveTensionLoss` is the sum, 16 times
    ours for a batch of 16: a factor that RMSprop's update hardly depends on.

    Where the negatives come from is a matter of the data, and not of this function. The readings of the field `reading`
    are explained in `data.pairing`:

    - `paper`: a sentence x, and K pairs of it with other sentences.
    - `released`: K pairs of two fresh sentences each, as the authors' code and sentence-transformers have it.
    """
    products = jnp.sum(first * second, axis=1)
    return jax.nn.softplus(jnp.where(is_positive, -products, products))


class ContrastiveTension(declarations.ContrastiveTension):
    """CT: groups of pairs, of which the first one has the same sentence twice."""

    def loss(self, embedded: Embedded, *, negatives: int, **fields: Any) -> Float[Array, ""]:
        """The mean of `contrastive_tension`, without negative pairs of equal texts. `reading` is the data's."""
        # By the place in the global batch, so that a group may lie on several devices.
        is_positive = embedded.own % (negatives + 1) == 0
        losses = contrastive_tension(*embedded.pair, is_positive)
        if embedded.texts is None:
            return embedded.mean(losses)
        kept = is_positive | (embedded.texts["anchor"] != embedded.texts["positive"])
        return embedded.psum(jnp.sum(jnp.where(kept, losses, 0.0))) / embedded.psum(jnp.sum(kept))
