"""The state that objectives keep between steps: the last part of an update, without gradient."""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from simcse_jax.devices.mesh import row_axes
from simcse_jax.models import parameters, partial
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives.chunks import in_chunks
from simcse_jax.objectives.objective import StatefulObjective
from simcse_jax.objectives.rows import Batch, Kept, StepSettings, encode_views
from simcse_jax.runs.state import TrainState
from simcse_jax.training.loss import copy_for_products, make_rows, product_precision
from simcse_jax.training.recipe import Recipe


def make_keeping(graph: Graph, recipe: Recipe, mesh: Mesh) -> Callable[..., Kept]:
    """Builds keep(state, params, batch, settings, frozen=None) -> `TrainState.kept` after the step.

    `state` is that before the step, `params` are those after it. Each device encodes its rows of the batch, in the
    recipe's chunks; objectives see those of all devices in the order of the batch.
    """
    stateful = [(term, term.objective) for term in recipe.objectives if isinstance(term.objective, StatefulObjective)]
    views = tuple(
        dict.fromkeys(view for _, objective in stateful for view in objective.state_views(recipe.plan).values())
    )

    def encode(
        params: Params, kept: Kept, step: Array, batch: Batch, settings: StepSettings, frozen: Params | None
    ) -> Float[Array, "B V D"]:
        """The embeddings of this device's rows."""
        whole = partial.of_step(params, frozen)
        encoders = {}
        for tower in {view.tower for view in views}:
            tower_params = copy_for_products(graph, {**whole, **kept.get(str(tower), {})}, recipe, len(batch["index"]))
            encoders[tower] = parameters.merge(graph, parameters.sentence_encoder(tower_params, 1 if tower == 1 else 0))
        towers = recipe.towers(encoders)

        def embed_rows(batch: Batch) -> Float[Array, "B V D"]:
            return encode_views(towers, make_rows(recipe, params, step, settings, batch), views)[0]

        return in_chunks(embed_rows, recipe.chunk_size, batch)

    def encode_global(params: Params, kept: Kept, *inputs: Any) -> Float[Array, "N V D"]:
        """The embeddings of the global batch, from parameters that the devices keep in parts."""
        if mesh.size == 1:
            return encode(params, kept, *inputs)

        def encode_local(params: Params, kept: Kept, *inputs: Any) -> Float[Array, "B V D"]:
            params, kept = jax.lax.pcast((params, kept), row_axes(mesh), to="varying")
            return encode(params, kept, *inputs)

        rows = P(row_axes(mesh))
        specs = (P(), P(), P(), rows, P(), P())
        return jax.shard_map(encode_local, mesh=mesh, in_specs=specs, out_specs=rows)(params, kept, *inputs)

    def keep(
        state: TrainState, params: Params, batch: Batch, settings: StepSettings, frozen: Params | None = None
    ) -> Kept:
        with product_precision(recipe):
            rows = encode_global(state.params, state.kept, state.step, batch, settings, frozen) if views else None
        kept = {}
        for term, objective in stateful:
            named = objective.state_views(recipe.plan)
            seen = {} if rows is None else {name: rows[:, views.index(view)] for name, view in named.items()}
            fields = term.fields(settings["objective"])
            del fields["weight"]
            kept[term.name] = objective.next_state(state.kept[term.name], seen, params, **fields)
        return kept

    return keep
