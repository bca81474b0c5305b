"""The supervised contrastive loss of sentences with classes."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.similarity import map_rows, normalize


def supcon(
    views: Float[AnyArray, "R D"],
    classes: Int[AnyArray, " R"],
    places: Int[AnyArray, " R"],
    all_views: Float[AnyArray, "M D"],
    all_classes: Int[AnyArray, " M"],
    *,
    temperature: Float[AnyArray, ""] | float,
) -> Float[Array, " R"]:
    """The supervised contrastive loss, one for each view.

        ℓ_i = −1/|P(i)| Σ_{p ∈ P(i)} log  exp(cos(z_i, z_p) / τ) / Σ_{a ≠ i} exp(cos(z_i, z_a) / τ)

    over the views a of the global batch, two of each sentence, with P(i) the others of the class of i: Khosla et al.
    2020 (arXiv:2004.11362), equation 2, with τ = 0.1 in Section 4. The second view of a sentence is in P(i), which is
    therefore never empty.

    Args:
      views: the local ones, at `places` among `all_views`.
    """
    views, all_views = normalize(views), normalize(all_views)

    def rows(
        views: Float[AnyArray, "S D"], classes: Int[AnyArray, " S"], places: Int[AnyArray, " S"]
    ) -> Float[Array, " S"]:
        logits = views @ all_views.T / temperature
        is_own = places[:, None] == jnp.arange(len(all_views))
        is_positive = (classes[:, None] == all_classes) & ~is_own
        positives = jnp.sum(jnp.where(is_positive, logits, 0.0), axis=1) / jnp.sum(is_positive, axis=1)
        return jax.nn.logsumexp(jnp.where(is_own, -jnp.inf, logits), axis=1) - positives

    return map_rows(rows, len(all_views), views, classes, places)


class SupCon(declarations.SupCon):
    """Sentences of a class attract each other, and repel those of other classes."""

    def loss(self, embedded: Embedded, **fields: Any) -> Float[Array, ""]:
        """The mean of `supcon` over both views of the batch."""
        assert embedded.label is not None  # it declares that it needs them
        all_views, all_classes = embedded.gather(jnp.stack(embedded.pair)), embedded.gather(embedded.label[None])[0]
        everywhere = jnp.concatenate([*all_views]), jnp.tile(all_classes, 2)
        first, second = (
            supcon(view, embedded.label, embedded.own + number * len(all_classes), *everywhere, **fields)
            for number, view in enumerate(embedded.pair)
        )
        return embedded.mean((first + second) / 2)
