"""From a gradient to an update: clipping by the global norm, AdamW or RMSprop, weight decay."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.parameters import Params
from simcse_jax.models.platforms import for_platform
from simcse_jax.training.learning_rate import learning_rate

MEAN, SQUARE = 0.9, 0.999  # AdamW's decay of the means of gradients and of their squares: β₁ and β₂
RMSPROP_SQUARE = 0.9  # ρ


class Optimization(NamedTuple):
    """The choices that an update is compiled for; its numbers are settings."""

    optimizer: str = "adamw"
    bias_correction: bool = True  # of AdamW's means
    schedule: str = "linear"
    mu_dtype: str = "float32"  # in which AdamW keeps the mean of gradients


ADAMW = Optimization()


def optimizer(
    step: Int[AnyArray, ""],
    settings: Mapping[str, Any],
    chosen: Optimization = ADAMW,
    norm: Callable[[Params], Float[Array, ""]] = optax.tree.norm,
) -> optax.GradientTransformation:
    """The chosen optimizer after clipping by the global norm.

    g is the clipped gradient, η the learning rate, m and v the moving means of g and g², v of RMSprop with ρ 0.9.

        adamw                          θ ← θ − η · (m̂ / (√v̂ + ε) + λ θ),  m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ)
        adamw without bias correction  θ ← θ − η · (m / (√v + ε) + λ θ)
        rmsprop                        θ ← θ − η · (g / (√v + ε) + λ θ)

    The second is transformers' former AdamW with `correct_bias=False`, the third Keras' RMSprop without momentum, which
    is PyTorch's with ρ = 0.9. All decays are decoupled from the gradient (Loshchilov and Hutter 2019), as Keras' is,
    and spare biases and norms. Transformers' decayed the updated θ, a difference of η² λ.

    With `mu_dtype` bfloat16 m is rounded to the nearest after each update, by at most 1/256 of it. An update forgets a
    tenth of what is wrong, so all roundings together are at most 10/256 = 4% of the largest m of the last steps. v
    stays in float32: with β₂ 0.999 it falls by at most 1/1000 in an update, less than the rounding, so it never would.
    """
    limit = settings["max_grad_norm"]
    return optax.chain(
        clip_by_global_norm(jnp.where(limit > 0, limit, jnp.inf), norm),
        optax.chain(
            _scaling(chosen, settings["epsilon"]),
            optax.add_decayed_weights(
                settings["weight_decay"],
                mask=lambda params: {name: name.endswith(("kernel", "embedding")) for name in params},
            ),
            optax.scale_by_learning_rate(learning_rate(chosen.schedule, step, settings)),
        ),
    )


def _scaling(chosen: Optimization, epsilon: Float[AnyArray, ""]) -> optax.GradientTransformation:
    if chosen.optimizer == "rmsprop":
        return optax.scale_by_rms(RMSPROP_SQUARE, epsilon, eps_in_sqrt=False)
    corrected = optax.scale_by_adam(MEAN, SQUARE, epsilon)
    scaling = corrected if chosen.bias_correction else _uncorrected(corrected, epsilon)
    return scaling if chosen.mu_dtype == "float32" else _with_rounded_mean(jnp.dtype(chosen.mu_dtype), scaling)


def _uncorrected(corrected: optax.GradientTransformation, epsilon: Float[AnyArray, ""]) -> optax.GradientTransformation:
    def update(
        gradient: Params, state: optax.ScaleByAdamState, _: Params | None = None
    ) -> tuple[Params, optax.ScaleByAdamState]:
        mean = optax.tree.update_moment(gradient, state.mu, MEAN, 1)
        square = optax.tree.update_moment(gradient, state.nu, SQUARE, 2)
        scaled = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mean, square)
        return scaled, optax.ScaleByAdamState(optax.safe_increment(state.count), mean, square)

    return optax.GradientTransformation(corrected.init, update)


def _with_rounded_mean(dtype: jnp.dtype, scaling: optax.GradientTransformation) -> optax.GradientTransformation:
    """`scaling`, whose state keeps m rounded to `dtype`; an update reads and computes it in float32.

    Optax's own `mu_dtype` would multiply m by β₁ in that type: in bfloat16 by 0.8984 instead of 0.9.
    """

    def as_type(state: optax.ScaleByAdamState, dtype: DTypeLike) -> optax.ScaleByAdamState:
        return state._replace(mu=optax.tree.cast(state.mu, dtype))

    def update(
        gradient: Params, state: optax.ScaleByAdamState, params: Params | None = None
    ) -> tuple[Params, optax.ScaleByAdamState]:
        updates, state = scaling.update(gradient, as_type(state, jnp.float32), params)
        return updates, as_type(state, dtype)

    return optax.GradientTransformation(lambda params: as_type(scaling.init(params), dtype), update)


def clip_by_global_norm(
    limit: Float[AnyArray, ""], norm_of: Callable[[Params], Float[Array, ""]]
) -> optax.GradientTransformation:
    """Like optax's, but with one factor for all elements. Optax divides each, and AdamW reads the results twice."""

    def update(gradient: Params, state: optax.EmptyState, _: Params | None = None) -> tuple[Params, optax.EmptyState]:
        norm = norm_of(gradient)
        factor = jnp.where(norm < limit, 1.0, limit / norm)
        return jax.tree.map(lambda x: x * factor, gradient), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def global_norm(gradient: Params) -> Float[Array, ""]:
    """The norm of a gradient whose arrays are not split. A GPU sums them together, not each in a kernel of its own."""

    def joint_norm(gradient: Params) -> Float[Array, ""]:
        squares = [jnp.square(x) for x in jax.tree.leaves(gradient)]
        rows = [jnp.sum(x, axis=tuple(range(1, x.ndim))) if x.ndim > 1 else x.ravel() for x in squares]
        # Without the barrier the compiler would take the sum apart again.
        return jnp.sqrt(jnp.sum(jax.lax.optimization_barrier(jnp.concatenate(rows))))

    return for_platform(gradient, cuda=joint_norm, default=optax.tree.norm)
