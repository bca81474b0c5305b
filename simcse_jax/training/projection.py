"""The projector within a step: which views share its statistics, and the gradient that batch norm takes away."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from simcse_jax.models import parameters
from simcse_jax.models.convolutions import PREFIX as CONVOLUTIONS
from simcse_jax.models.modules import PREFIX as MODULES
from simcse_jax.models.parameters import Params
from simcse_jax.models.projector import Projector, project
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives.embedded import Psum
from simcse_jax.objectives.views import Plan, View, each_of


def project_views(
    projector: Projector,
    params: Params,
    views: Sequence[View],
    plan: Plan,
    embeddings: Float[Array, "V B D"],
    psum: Psum,
) -> Float[Array, "V B P"]:
    """The embeddings of the views after the projector; those that share statistics are projected together."""
    own = parameters.subset(params, parameters.PROJECTOR)
    projected: dict[int, jax.Array] = {}
    for group in sharing_statistics(projector, views, plan):
        rows = project(embeddings[jnp.array(group)], projector, own, psum)
        projected |= dict(zip(group, rows, strict=True))
    return jnp.stack([projected[number] for number in range(len(views))])


def sharing_statistics(projector: Projector, views: Sequence[View], plan: Plan) -> list[list[int]]:
    """Groups of views, by their numbers. Views of other masks, for negative pairs, are a group of their own."""
    numbers = range(len(views))
    if projector.statistics != "together":
        return [[number] for number in numbers]
    of_pairs = each_of(plan.pair())
    pairs = [number for number in numbers if views[number] in of_pairs]
    others = [number for number in numbers if number not in pairs]
    return [group for group in (pairs, others) if group]


def without_shift(graph: Graph, params: Params) -> Params:
    """The parameters, without the gradient of the bias that the last layer adds to all embeddings, if it does.

    Where batch norm takes that away again, the gradient is zero. Left to rounding it would be noise, which Adam blows
    up to full steps that differ from machine to machine.
    """
    if any(name.startswith((CONVOLUTIONS, MODULES)) for name in params):  # what convolutions read has an end
        return params
    config = parameters.merge(graph, parameters.sentence_encoder(params)).encoder.config
    groups = config.groups
    if groups.count(groups[-1]) > 1:  # layers before the last one add the same bias
        return params
    last = "encoder.final_norm.bias" if config.pre_norm else f"encoder.layers.{groups[-1]}.output_norm.bias"
    names = {last, parameters.SECOND + last} & params.keys()
    return params | {name: jax.lax.stop_gradient(params[name]) for name in names}
