"""All objectives by name, and any weighted sum of them."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives import (
    angle,
    barlow_twins,
    contrastive_tension,
    cosent,
    cosine_mse,
    dimension_wise,
    distill_kl,
    embedding_mse,
    gist,
    info_nce,
    jensen_shannon,
    margin_mse,
    masked_lm,
    off_dropout,
    replaced_token_detection,
    self_contrastive,
    softmax_nli,
)
from simcse_jax.objectives.choices import UNTRUNCATED
from simcse_jax.objectives.objective import Embedded, Needs, Objective

OBJECTIVES: dict[str, Objective] = {  # by their names in `config.objective`
    "info_nce": info_nce.OBJECTIVE,
    "off_dropout": off_dropout.OBJECTIVE,
    "dimension_wise": dimension_wise.OBJECTIVE,
    "barlow_twins": barlow_twins.OBJECTIVE,
    "contrastive_tension": contrastive_tension.OBJECTIVE,
    "self_contrastive": self_contrastive.OBJECTIVE,
    "jensen_shannon": jensen_shannon.OBJECTIVE,
    masked_lm.NAME: masked_lm.OBJECTIVE,
    replaced_token_detection.NAME: replaced_token_detection.OBJECTIVE,
    "softmax_nli": softmax_nli.OBJECTIVE,
    "cosent": cosent.OBJECTIVE,
    "angle": angle.OBJECTIVE,
    "cosine_mse": cosine_mse.OBJECTIVE,
    embedding_mse.NAME: embedding_mse.OBJECTIVE,
    "margin_mse": margin_mse.OBJECTIVE,
    "distill_kl": distill_kl.OBJECTIVE,
    "gist": gist.OBJECTIVE,
}


class Term(NamedTuple):
    """A term of a run's loss: the name of its objective, and those of its fields that are compiled in."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    projected: bool = False  # it sees the views after the projector


def total(
    embedded: Embedded,
    terms: Sequence[Term],
    numbers: Mapping[str, Mapping[str, Any]],
    sizes: Sequence[int] = (),
    size_weights: Float[AnyArray, " S"] | None = None,
) -> Float[Array, ""]:
    """Σ weight · objective over the global batch, the same scalar on every device.

    With sizes, an objective of embeddings is itself a weighted sum over embeddings of which the first elements are
    left, Matryoshka embeddings (Kusupati et al. 2022, arXiv:2205.13147, equation 1):

        ℓ = Σ_m c_m ℓ(h_{1:m})

    Args:
      embedded: the batch.
      terms: the objectives to sum.
      numbers: each objective's scalar fields by name, including its `weight`.
      sizes: m, numbers of elements; empty: the embeddings as they are.
      size_weights: (S,) c_m; needed with sizes.
    """
    loss = jnp.zeros(())
    for name, options, projected in terms:
        fields = dict(numbers[name])
        weight = fields.pop("weight")
        seen, term = embedded.seen(projected), functools.partial(OBJECTIVES[name].term, **fields, **dict(options))
        if sizes and name not in UNTRUNCATED:
            assert size_weights is not None
            loss += weight * sum(size_weights[place] * term(seen.truncated(size)) for place, size in enumerate(sizes))
        else:
            loss += weight * term(seen)
    return loss


def sees_views(name: str) -> bool:
    """Whether an objective is one of embeddings, and not of masked tokens alone."""
    return name != masked_lm.NAME


def trained(fields: Any) -> dict[str, Objective]:
    """The objectives whose weight is above 0, by name.

    Args:
      fields: `config.objective`, or the dictionary in `run.json`; an objective missing in an older run is off.
    """
    return {name: objective for name, objective in OBJECTIVES.items() if fields.get(name, {}).get("weight", 0.0) > 0}


def needs(fields: Any) -> Needs:
    """The needs of all trained objectives; `fields` as for `trained`."""
    each = [objective.needs for objective in trained(fields).values()]
    return Needs(*(any(one) for one in zip(*each, strict=True)))
