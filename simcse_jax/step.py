"""One update, pure: step(state, batch, settings) -> (state, metrics). `shard_map` lives here and nowhere else."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from simcse_jax import views
from simcse_jax.chunks import in_chunks
from simcse_jax.models import parameters
from simcse_jax.models.parameters import Params
from simcse_jax.objectives.info_nce import info_nce

AXIS = "data"
METRICS = ("loss", "learning_rate", "gradient_norm")


class TrainState(NamedTuple):
    """All that an update changes. `step` counts the updates done."""

    step: jax.Array
    params: Params
    optimizer: optax.OptState


class Recipe(NamedTuple):
    """What a compiled step is specialized on; everything else is data or `settings`.

    `views` names, for each view, the column of the batch that it encodes: (0, 0) is one sentence under two
    masks (unsupervised), (0, 1) a pair, (0, 1, 2) a triplet whose last column is the hard negative.
    `chunk_size` examples are encoded at a time on each device (0: all of its part of the batch).
    `matmul_precision` is that of float32 products: highest, high or default (`jax.default_matmul_precision`).
    """

    pooler: str
    use_head: bool
    views: tuple[int, ...]
    objectives: tuple[str, ...]
    chunk_size: int = 0
    matmul_precision: str = "highest"


Batch = dict[str, jax.Array]  # input_ids, attention_mask: (B, C, T); index: (B,) in the global batch
Settings = dict[str, Any]  # a pytree of scalars: changing one recompiles nothing


def data_mesh(devices: list[jax.Device]) -> Mesh:
    """The one-dimensional mesh over which a batch is split."""
    return jax.make_mesh((len(devices),), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,), devices=devices)


def replicated(mesh: Mesh) -> NamedSharding:
    """The same array on every device."""
    return NamedSharding(mesh, P())


def split_over_examples(mesh: Mesh) -> NamedSharding:
    """The first axis split over the devices."""
    return NamedSharding(mesh, P(AXIS))


def learning_rate(step: jax.Array, settings: Settings) -> jax.Array:
    """Linear decay to zero without warm-up; the first update has the full rate."""
    return settings["learning_rate"] * (1.0 - step / settings["total_steps"])


def optimizer(step: jax.Array, settings: Settings) -> optax.GradientTransformation:
    """AdamW (0.9, 0.999, 1e-8) behind clipping by the global norm; weight decay spares biases and norms."""
    limit = settings["max_grad_norm"]
    return optax.chain(
        optax.clip_by_global_norm(jnp.where(limit > 0, limit, jnp.inf)),
        optax.adamw(
            learning_rate(step, settings),
            weight_decay=settings["weight_decay"],
            mask=lambda params: {name: name.endswith(("kernel", "embedding")) for name in params},
        ),
    )


def init_state(params: Params, settings: Settings) -> TrainState:
    """The state before the first update."""
    step = jnp.zeros((), jnp.int32)
    return TrainState(step, params, optimizer(step, settings).init(params))


def make_loss(graph: Any, recipe: Recipe, mesh: Mesh) -> Callable[..., tuple[jax.Array, Params]]:
    """Builds loss_and_gradient(params, step, batch, settings), the gradient being that of the global loss.

    Every device encodes its rows of the batch; embeddings are all-gathered *with* their gradients, so N devices
    compute what one device computes with the whole batch.
    """
    num_views = len(recipe.views)

    def loss(params: Params, step: jax.Array, batch: Batch, settings: Settings) -> jax.Array:
        # Said here, or else every use of a parameter (with chunks: in every turn of the scan) would mean it, and the
        # gradient be summed over the devices at each.
        params = jax.lax.pcast(params, AXIS, to="varying")
        model = parameters.merge(graph, params)

        def encode(batch: Batch) -> jax.Array:  # (B, V, D)
            def by_view(x: jax.Array) -> jax.Array:  # (B, C, T) -> (V * B, T)
                return jnp.concatenate([x[:, column] for column in recipe.views])

            embeddings = model(
                by_view(batch["input_ids"]),
                by_view(batch["attention_mask"]),
                pooler=recipe.pooler,
                use_head=recipe.use_head,
                dropout_keys=views.dropout_keys(settings["seed"], step, batch["index"], num_views).reshape(-1),
                dropout_rate=settings["dropout"],
            )
            return jnp.moveaxis(embeddings.reshape(num_views, *batch["index"].shape, -1), 0, 1)

        embeddings = jnp.moveaxis(in_chunks(encode, recipe.chunk_size, batch), 1, 0)
        anchors = embeddings[0]
        columns = jax.lax.all_gather(embeddings[1:], AXIS, axis=1, tiled=True)
        examples = columns.shape[1]

        total = jnp.zeros(())
        for name in recipe.objectives:
            terms = dict(settings["objective"][name])
            weight = terms.pop("weight")
            losses = OBJECTIVES[name](anchors, columns, batch["index"], terms)
            total += weight * jax.lax.psum(jnp.sum(losses), AXIS) / examples
        return total

    def loss_and_gradient(*args: Any) -> tuple[jax.Array, Params]:
        with jax.default_matmul_precision(recipe.matmul_precision):
            return jax.value_and_grad(loss)(*args)

    # `shard_map` sums the gradients of replicated parameters by itself: no psum of them here.
    return jax.shard_map(loss_and_gradient, mesh=mesh, in_specs=(P(), P(), P(AXIS), P()), out_specs=(P(), P()))


def _info_nce(anchors: jax.Array, columns: jax.Array, own: jax.Array, terms: Settings) -> jax.Array:
    return info_nce(anchors, columns[0], columns[1] if len(columns) > 1 else None, own, **terms)


OBJECTIVES = {"info_nce": _info_nce}


def make_step(graph: Any, recipe: Recipe, mesh: Mesh) -> Callable[..., tuple[TrainState, dict[str, jax.Array]]]:
    """Builds the jitted step(state, batch, settings) -> (state, metrics); the old state is given up."""
    loss_and_gradient = make_loss(graph, recipe, mesh)

    def step(state: TrainState, batch: Batch, settings: Settings) -> tuple[TrainState, dict[str, jax.Array]]:
        loss, gradient = loss_and_gradient(state.params, state.step, batch, settings)
        updates, opt_state = optimizer(state.step, settings).update(gradient, state.optimizer, state.params)
        metrics = {
            "loss": loss,
            "learning_rate": learning_rate(state.step, settings),
            "gradient_norm": optax.tree.norm(gradient),
        }
        return TrainState(state.step + 1, optax.apply_updates(state.params, updates), opt_state), metrics

    return jax.jit(step, donate_argnums=0, out_shardings=replicated(mesh))
