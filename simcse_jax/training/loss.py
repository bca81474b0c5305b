"""The loss of a batch and its gradient. `shard_map` is here and nowhere else."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.chunks import in_chunks
from simcse_jax.devices.mesh import AXIS
from simcse_jax.models import parameters
from simcse_jax.models.language_model import activation
from simcse_jax.models.masking import mask_tokens, select_positions
from simcse_jax.models.parameters import Params
from simcse_jax.objectives.masked_lm import masked_lm
from simcse_jax.objectives.registry import Embedded, Group, Objective, total
from simcse_jax.training.views import LANGUAGE_MODEL, MASKING, NOISE, View, dropout_keys, embed


class LanguageModel(NamedTuple):
    """What masking needs to know of the tokenizer."""

    mask_id: int
    special_ids: tuple[int, ...]


class Recipe(NamedTuple):
    """What a compiled step is specialized on; everything else is data or `settings`.

    `views` are the embeddings of each example that are made, `positive` and `negative` say which of them make up the
    pairs (see `views.plan`). `chunk_size` examples are encoded at a time on each device (0: all of its part of the
    batch). `matmul_precision` is that of float32 products: highest, high or default (`jax.default_matmul_precision`).
    `most_tokens` says of each column how many tokens the examples that are encoded at a time have at most
    (`Batches.sizes`): nothing is computed of padding then; (): it is computed too.
    """

    pooler: str
    use_head: bool
    views: tuple[View, ...]
    positive: Group
    negative: Group
    objectives: tuple[Objective, ...]
    chunk_size: int = 0
    matmul_precision: str = "highest"
    language_model: LanguageModel | None = None
    most_tokens: tuple[int, ...] = ()


Batch = dict[str, jax.Array]  # input_ids, attention_mask: (B, C, T); index: (B,) in the global batch; label: (B,)
Settings = dict[str, Any]  # a pytree of scalars: changing one recompiles nothing


def make_loss(graph: Any, recipe: Recipe, mesh: Mesh) -> Callable[..., tuple[jax.Array, Params]]:
    """Builds loss_and_gradient(params, step, batch, settings), the gradient being that of the global loss.

    Every device encodes its rows of the batch; embeddings are all-gathered *with* their gradients, so N devices
    compute what one device computes with the whole batch. One device alone has nothing to gather and to sum.
    """
    alone = mesh.size == 1

    def loss(params: Params, step: jax.Array, batch: Batch, settings: Settings) -> jax.Array:
        # Said here, or else every use of a parameter (with chunks: in every turn of the scan) would mean it, and the
        # gradient be summed over the devices at each.
        if not alone:
            params = jax.lax.pcast(params, AXIS, to="varying")

        def encode(batch: Batch) -> dict[str, Any]:
            return encode_rows(graph, recipe, params, step, batch, settings)

        rows = in_chunks(encode, recipe.chunk_size, batch)
        size = rows["views"].shape[-1]

        def artificial(count: int) -> jax.Array:
            key = dropout_keys(settings["seed"], step, jnp.full(1, -1, jnp.int32), [NOISE])[0, 0]
            return jax.random.normal(key, (count, size))

        embedded = Embedded(
            views=jnp.moveaxis(rows["views"], 1, 0),
            positive=recipe.positive,
            negative=recipe.negative,
            own=batch["index"],
            gather=lambda x: x if alone else jax.lax.all_gather(x, AXIS, axis=1, tiled=True),
            psum=lambda x: x if alone else jax.lax.psum(x, AXIS),
            artificial=artificial,
            label=batch.get("label"),
            classifier=params.get(parameters.CLASSIFIER),
            masked=rows.get("masked"),
        )
        return total(embedded, recipe.objectives, settings["objective"])

    def loss_and_gradient(*args: Any) -> tuple[jax.Array, Params]:
        with jax.default_matmul_precision(recipe.matmul_precision):
            return jax.value_and_grad(loss)(*args)

    if alone:
        return loss_and_gradient
    # `shard_map` sums the gradients of replicated parameters by itself: no psum of them here.
    return jax.shard_map(loss_and_gradient, mesh=mesh, in_specs=(P(), P(), P(AXIS), P()), out_specs=(P(), P()))


def encode_rows(
    graph: Any, recipe: Recipe, params: Params, step: jax.Array, batch: Batch, settings: Settings
) -> dict[str, Any]:
    """All that is encoded of some rows of a batch, each row for itself: `views` (B, V, D), and `masked` if wanted."""

    def keys(numbers: list[int]) -> jax.Array:  # (V, B)
        return dropout_keys(settings["seed"], step, batch["index"], numbers)

    def by_column(x: jax.Array, columns: list[int]) -> jax.Array:  # (B, C, T) -> (P * B, T)
        return jnp.concatenate([x[:, column] for column in columns])

    def most_tokens(columns: list[int]) -> int | None:
        return sum(recipe.most_tokens[column] for column in columns) if recipe.most_tokens else None

    def encode(tower: int, columns: list[int], masks: list[int] | None) -> jax.Array:
        embeddings = parameters.merge(graph, parameters.sentence_encoder(params, tower))(
            by_column(batch["input_ids"], columns),
            by_column(batch["attention_mask"], columns),
            pooler=recipe.pooler,
            use_head=recipe.use_head,
            dropout_keys=None if masks is None else keys(masks).reshape(-1),
            dropout_rate=settings["dropout"],
            most_tokens=most_tokens(columns),
        )
        return embeddings.reshape(len(columns), *batch["index"].shape, -1)

    def noise(number: int, shape: tuple[int, ...]) -> jax.Array:
        draw = jax.vmap(lambda key: jax.random.normal(key, shape[1:]))
        return jnp.sqrt(settings["noise"]) * draw(keys([NOISE + number])[0])

    def masked() -> tuple[jax.Array, jax.Array]:
        """(B,) sums of the losses at the masked tokens of an example, and their numbers; of the first encoder."""
        columns = sorted({view.column for view in recipe.views if not view.tower})  # those that this encoder sees
        ids, mask = (by_column(batch[name], columns) for name in ("input_ids", "attention_mask"))
        table = params[parameters.WORD_EMBEDDING]
        masking = keys([MASKING + column for column in columns]).reshape(-1)
        shown, selected = mask_tokens(masking, ids, mask, vocab_size=len(table), **recipe.language_model._asdict())
        encoder = parameters.merge(graph, parameters.sentence_encoder(params)).encoder
        hidden = encoder(
            shown,
            mask,
            dropout_keys=keys([LANGUAGE_MODEL + column for column in columns]).reshape(-1),
            dropout_rate=settings["dropout"],
            most_tokens=most_tokens(columns),
        )[-1]
        # Logits where they are needed only: of half of the positions, three times what is masked on average.
        positions, valid = select_positions(selected, -(-ids.shape[1] // 2))
        hidden = jnp.take_along_axis(hidden, positions[:, :, None], axis=1).astype(jnp.float32)
        labels = jnp.take_along_axis(ids, positions, axis=1)
        losses = masked_lm(
            hidden.reshape(-1, hidden.shape[-1]),
            labels.reshape(-1),
            parameters.subset(params, parameters.LANGUAGE_MODEL),
            table,
            activation=activation(encoder.config),
            eps=encoder.config.layer_norm_eps,
        ).reshape(valid.shape)
        by_row = [jnp.sum(x, axis=1).reshape(len(columns), -1) for x in (jnp.where(valid, losses, 0.0), valid)]
        return tuple(jnp.sum(x, axis=0) for x in by_row)

    rows = {"views": jnp.moveaxis(embed(recipe.views, encode, noise), 0, 1)}
    return rows | ({"masked": masked()} if recipe.language_model else {})
