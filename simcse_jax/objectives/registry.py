"""Any weighted sum of the objectives: what each of them is given of a batch, and its share of the loss."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from simcse_jax.objectives.barlow_twins import barlow_twins
from simcse_jax.objectives.dimension_wise import dimension_wise
from simcse_jax.objectives.info_nce import info_nce, symmetric_info_nce
from simcse_jax.objectives.off_dropout import off_dropout
from simcse_jax.objectives.softmax_nli import softmax_nli


class Objective(NamedTuple):
    """A term of the loss: its name, and those of its options that are not numbers to be varied."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()


class Group(NamedTuple):
    """What belongs together in a contrast, by position among the views."""

    anchor: int
    positive: int
    hard_negatives: tuple[int, ...]


class Embedded(NamedTuple):
    """The rows of a batch on this device, and how to reach those on the others."""

    views: jax.Array  # (V, B, D)
    positive: Group  # the views of the positive pairs
    negative: Group  # those of the negative pairs, where they are other ones
    own: jax.Array  # (B,) positions in the global batch
    gather: Callable[[jax.Array], jax.Array]  # (K, B, D) -> (K, N, D)
    psum: Callable[[jax.Array], jax.Array]
    artificial: Callable[[int], jax.Array]  # M -> (M, D) standard normal rows, the same on every device
    label: jax.Array | None = None  # (B,) 0, 1, 2: entailment, neutral, contradiction
    classifier: jax.Array | None = None  # (3D, 3) of softmax_nli
    masked: tuple[jax.Array, jax.Array] | None = None  # (B,) sums of an example's masked-token losses, their numbers


def total(embedded: Embedded, objectives: Sequence[Objective], terms: dict[str, dict[str, jax.Array]]) -> jax.Array:
    """Σ weight · objective over the global batch, the same scalar on every device.

    Args:
      embedded: the batch.
      objectives: the terms.
      terms: the numbers of each, its `weight` among them.
    """
    loss = jnp.zeros(())
    for name, options in objectives:
        numbers = dict(terms[name])
        weight = numbers.pop("weight")
        loss += weight * TERMS[name](embedded, **numbers, **dict(options))
    return loss


def _mean(embedded: Embedded, losses: jax.Array) -> jax.Array:
    return embedded.psum(jnp.sum(losses)) / embedded.psum(losses.shape[0])


def _others(embedded: Embedded, group: Group) -> tuple[jax.Array, jax.Array | None]:
    """The gathered positives (N, D) and further negatives (H, N, D) of a group."""
    gathered = embedded.gather(jnp.stack([embedded.views[view] for view in (group.positive, *group.hard_negatives)]))
    return gathered[0], gathered[1:] if group.hard_negatives else None


def _info_nce(embedded: Embedded, *, symmetric: bool, **numbers: Any) -> jax.Array:
    group = embedded.positive
    anchors, (positives, hard_negatives) = embedded.views[group.anchor], _others(embedded, group)
    if not symmetric:
        return _mean(embedded, info_nce(anchors, positives, hard_negatives, embedded.own, **numbers))
    all_anchors = embedded.gather(anchors[None])[0]
    own_positives = embedded.views[group.positive]
    losses = symmetric_info_nce(anchors, own_positives, all_anchors, positives, hard_negatives, embedded.own, **numbers)
    return _mean(embedded, losses)


def _off_dropout(embedded: Embedded, **numbers: Any) -> jax.Array:
    pairs, others = embedded.positive, embedded.negative
    clean_positives, clean_hard_negatives = _others(embedded, others)
    losses = off_dropout(
        embedded.views[pairs.anchor],
        embedded.views[pairs.positive],
        embedded.views[others.anchor],
        clean_positives,
        clean_hard_negatives,
        embedded.own,
        **numbers,
    )
    return _mean(embedded, losses)


def _pair(embedded: Embedded) -> tuple[jax.Array, jax.Array]:
    return embedded.views[embedded.positive.anchor], embedded.views[embedded.positive.positive]


def _dimension_wise(embedded: Embedded, **numbers: Any) -> jax.Array:
    return dimension_wise(*_pair(embedded), embedded.psum, **numbers)


def _barlow_twins(embedded: Embedded, *, artificial: int, **numbers: Any) -> jax.Array:
    return barlow_twins(*_pair(embedded), embedded.artificial(artificial), embedded.psum, **numbers)


def _softmax_nli(embedded: Embedded) -> jax.Array:
    return _mean(embedded, softmax_nli(*_pair(embedded), embedded.label, embedded.classifier))


def _mlm(embedded: Embedded) -> jax.Array:
    losses, counts = (embedded.psum(jnp.sum(part)) for part in embedded.masked)
    return losses / jnp.maximum(counts, 1)


TERMS = {
    "info_nce": _info_nce,
    "off_dropout": _off_dropout,
    "dimension_wise": _dimension_wise,
    "barlow_twins": _barlow_twins,
    "mlm": _mlm,
    "softmax_nli": _softmax_nli,
}
