"""One update, pure: step(state, batch, settings, frozen) -> (state, metrics)."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from simcse_jax.devices.parts import constrain, shardings
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives.rows import Batch, Kept, StepSettings
from simcse_jax.runs.state import TrainState
from simcse_jax.training.keeping import make_keeping
from simcse_jax.training.learning_rate import learning_rate
from simcse_jax.training.loss import make_loss
from simcse_jax.training.optimizer import ADAMW, Optimization, global_norm, optimizer
from simcse_jax.training.recipe import Recipe

EMA_DECAY = "ema_decay"  # in the settings of a step that averages the parameters
METRICS = ("loss", "learning_rate", "gradient_norm")

StepMetrics = dict[str, Float[Array, ""]]  # by the names above, and OBJECTIVE/NAME of what objectives measure
Update = Callable[..., tuple[TrainState, StepMetrics]]  # (state, batch, settings, frozen=None)


class Averaged(NamedTuple):
    """The optimizer's part of a state whose `params` are the moving average of those that train."""

    trained: Params
    optimizer: optax.OptState


def init_state(
    params: Params, settings: Mapping[str, Any], chosen: Optimization = ADAMW, kept: Kept | None = None
) -> TrainState:
    """The state before the first update. The optimizer's part is bound to no device, even where `params` are."""
    return TrainState(jnp.zeros((), jnp.int32), params, _fresh(params, settings, chosen), kept or {})


@functools.partial(jax.jit, static_argnames="chosen")  # one program in place of one for each shape
def _fresh(params: Params, settings: Mapping[str, Any], chosen: Optimization) -> optax.OptState:
    state = optimizer(jnp.zeros((), jnp.int32), settings, chosen).init(params)
    return Averaged(jax.tree.map(jnp.copy, params), state) if EMA_DECAY in settings else state


def split_state(
    params: Params, settings: Mapping[str, Any], chosen: Optimization, kept: Kept, mesh: Mesh
) -> TrainState:
    """`init_state` of arrays that `devices.parts` has split, which are donated: the rest is made where it belongs."""

    def make(params: Params, settings: Mapping[str, Any], kept: Kept) -> TrainState:
        return init_state(params, settings, chosen, kept)

    wanted = shardings(jax.eval_shape(make, params, settings, kept), mesh)
    return jax.jit(make, donate_argnums=(0, 2), out_shardings=wanted)(params, settings, kept)


def make_update(graph: Graph, recipe: Recipe, mesh: Mesh) -> Update:
    """Builds update(state, batch, settings, frozen=None) -> (state, metrics), not jitted; see `make_loss`.

    With `ema_decay` d among the settings the parameters θ that train are in the optimizer's part of the state
    (`Averaged`). Its `params`, which are scored and kept, are their exponential moving average:

        θ̄_t = d θ̄_{t−1} + (1 − d) θ_t,  θ̄_0 = θ_0
    """
    loss_and_gradient, keep = make_loss(graph, recipe, mesh), make_keeping(graph, recipe, mesh)
    norm = global_norm if mesh.size == 1 else optax.tree.norm

    def update(
        state: TrainState, batch: Batch, settings: StepSettings, frozen: Params | None = None
    ) -> tuple[TrainState, StepMetrics]:
        average = state.params
        if EMA_DECAY in settings:
            state = state._replace(params=state.optimizer.trained, optimizer=state.optimizer.optimizer)
        (loss, measures), gradient = loss_and_gradient(state.params, state.step, batch, settings, frozen, state.kept)
        chosen = optimizer(state.step, settings, recipe.optimization, norm)
        updates, opt_state = chosen.update(gradient, state.optimizer, state.params)
        metrics = {
            "loss": loss,
            "learning_rate": learning_rate(recipe.optimization.schedule, state.step, settings),
            "gradient_norm": norm(gradient),
            **measures,
        }
        new = TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state, {})
        if state.kept:
            new = new._replace(kept=keep(state, new.params, batch, settings, frozen))
        if EMA_DECAY in settings:
            average = optax.incremental_update(new.params, average, 1 - settings[EMA_DECAY])
            new = new._replace(params=average, optimizer=Averaged(new.params, new.optimizer))
        return new, metrics

    return update


@functools.lru_cache(maxsize=16)
def make_step(graph: Graph, recipe: Recipe, mesh: Mesh) -> jax.stages.Wrapped:
    """The jitted update, which donates the old state. The same arguments give the same function, compiled once.

    Each device updates its part of the state (`devices.parts`).
    """
    compute = make_update(graph, recipe, mesh)

    def update(
        state: TrainState, batch: Batch, settings: StepSettings, frozen: Params | None = None
    ) -> tuple[TrainState, StepMetrics]:
        return constrain(compute(state, batch, settings, frozen), mesh)

    return jax.jit(update, donate_argnums=0)
