"""AdamW, its learning rate, and clipping by the global norm."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.parameters import Params
from simcse_jax.runs.state import TrainState
from simcse_jax.training.loss import Settings


def learning_rate(step: Int[AnyArray, ""], settings: Settings) -> Float[Array, ""]:
    """Linear decay to zero without warm-up; the first update has the full rate."""
    return settings["learning_rate"] * (1.0 - step / settings["total_steps"])


def optimizer(step: Int[AnyArray, ""], settings: Settings) -> optax.GradientTransformation:
    """AdamW (0.9, 0.999, 1e-8) after clipping by the global norm; weight decay spares biases and norms."""
    limit = settings["max_grad_norm"]
    return optax.chain(
        clip_by_global_norm(jnp.where(limit > 0, limit, jnp.inf)),
        optax.adamw(
            learning_rate(step, settings),
            weight_decay=settings["weight_decay"],
            mask=lambda params: {name: name.endswith(("kernel", "embedding")) for name in params},
        ),
    )


def clip_by_global_norm(limit: Float[AnyArray, ""]) -> optax.GradientTransformation:
    """Like optax's, but with one factor for all elements. Optax divides each, and AdamW reads the results twice."""

    def update(gradient: Params, state: optax.EmptyState, _: Params | None = None) -> tuple[Params, optax.EmptyState]:
        norm = optax.tree.norm(gradient)
        factor = jnp.where(norm < limit, 1.0, limit / norm)
        return jax.tree.map(lambda x: x * factor, gradient), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def init_state(params: Params, settings: Settings) -> TrainState:
    """The state before the first update."""
    step = jnp.zeros((), jnp.int32)
    return TrainState(step, params, optimizer(step, settings).init(params))
