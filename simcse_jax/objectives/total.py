"""The loss of a run: a weighted sum of objectives."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float

from simcse_jax.objectives.lazy import AnyArray, Array, jnp
from simcse_jax.objectives.objective import Embedded, Objective


class Term(NamedTuple):
    """A term of a run's loss: an objective, and those of its fields that are compiled in."""

    objective: Objective
    options: tuple[tuple[str, Any], ...] = ()
    projected: bool = False  # it sees the views after the projector

    @property
    def name(self) -> str:
        """That of its objective."""
        return self.objective.name


def total(
    terms: Sequence[tuple[Term, Embedded]],
    numbers: Mapping[str, Mapping[str, Any]],
    sizes: Sequence[int] = (),
    size_weights: Float[AnyArray, " S"] | None = None,
) -> Float[Array, ""]:
    """Σ weight · objective over the global batch, the same scalar on every device.

    With sizes, an objective of embeddings is itself a weighted sum over embeddings of which the first elements are
    left, Matryoshka embeddings (Kusupati et al. 2022, arXiv:2205.13147, equation 1):

        ℓ = Σ_m c_m ℓ(h_{1:m})

    Args:
      terms: the objectives to sum, each with what it sees of the batch.
      numbers: each objective's scalar fields by name, including its `weight`.
      sizes: m, numbers of elements; empty: the embeddings as they are.
      size_weights: (S,) c_m; needed with sizes.
    """
    loss = jnp.zeros(())
    for (objective, options, _), embedded in terms:
        fields = dict(numbers[objective.name])
        weight = fields.pop("weight")
        term = functools.partial(objective.loss, **fields, **dict(options))
        if sizes and objective.truncatable:
            assert size_weights is not None
            each = (size_weights[place] * term(embedded.truncated(size)) for place, size in enumerate(sizes))
            loss += weight * sum(each)
        else:
            loss += weight * term(embedded)
    return loss
