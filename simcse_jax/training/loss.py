"""The loss of a batch and its gradient. `shard_map` is here and nowhere else."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int, Key

from simcse_jax.devices.chunks import in_chunks
from simcse_jax.devices.mesh import AXIS
from simcse_jax.models import parameters
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.language_model import activation
from simcse_jax.models.masking import mask_tokens, select_positions
from simcse_jax.models.parameters import Params
from simcse_jax.models.pooling import FIRST_TOKEN
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives.masked_lm import masked_lm
from simcse_jax.objectives.objective import Embedded, Group
from simcse_jax.objectives.registry import Term, total
from simcse_jax.training.views import LANGUAGE_MODEL, MASKING, NOISE, View, dropout_keys, embed


class LanguageModel(NamedTuple):
    """What masking needs to know of the tokenizer."""

    mask_id: int
    special_ids: tuple[int, ...]


class Recipe(NamedTuple):
    """What a compiled step is specialized on; everything else is data or `settings`."""

    pooler: str
    use_head: bool
    views: tuple[View, ...]  # the embeddings of each example that are made
    positive: Group  # which of them make up the positive pairs (see `views.plan`)
    negative: Group  # and the negative pairs
    objectives: tuple[Term, ...]
    chunk_size: int = 0  # examples encoded at a time on each device; 0: all of its part of the batch
    matmul_precision: str = "highest"  # of float32 products: highest, high or default (`jax.default_matmul_precision`)
    local_features: bool = False  # whether an objective needs those of the anchors' tokens
    language_model: LanguageModel | None = None  # where an objective needs masked tokens
    # Of each column, the most tokens that the examples have that are encoded at a time (`Batches.sizes`): nothing is
    # computed of padding then; (): it is computed too.
    most_tokens: tuple[int, ...] = ()

    @property
    def anchor(self) -> View:
        """The view of the anchors of the positive pairs."""
        return self.views[self.positive.anchor]


# input_ids, attention_mask: (B, C, T); index: (B,) in the global batch; label: (B,); present: (B, C), see `Corpus`
Batch = dict[str, AnyArray]
Settings = dict[str, Any]  # a pytree of scalars: changing one recompiles nothing
Gradient = Callable[[Params, Int[AnyArray, ""], Batch, Settings], tuple[Float[Array, ""], Params]]


def make_loss(graph: Graph, recipe: Recipe, mesh: Mesh) -> Gradient:
    """Builds loss_and_gradient(params, step, batch, settings), the gradient being that of the global loss.

    Every device encodes its rows of the batch; embeddings are all-gathered *with* their gradients, so N devices
    compute what one device computes with the whole batch. One device alone has nothing to gather and to sum.
    """
    alone = mesh.size == 1

    def loss(params: Params, step: Int[AnyArray, ""], batch: Batch, settings: Settings) -> Float[Array, ""]:
        # Cast to device-varying once, here. Otherwise JAX casts at every use, and sums the gradient over the devices
        # each time (with chunks, in every iteration of the scan).
        if not alone:
            params = jax.lax.pcast(params, AXIS, to="varying")

        def encode(batch: Batch) -> tuple[MaskedLosses | None, Float[Array, "B V D"], Float[Array, "B T _D"] | None]:
            rows = Rows(batch, step, settings, recipe.most_tokens)
            views, local = encode_views(graph, recipe, params, rows)
            return masked_token_losses(graph, recipe, params, rows) if recipe.language_model else None, views, local

        mixed = "present" in batch  # rows of sources with different columns
        masked, views, local = in_chunks(encode, recipe.chunk_size, batch)

        def artificial(count: int) -> Float[Array, "M D"]:
            key = dropout_keys(settings["seed"], step, jnp.full(1, -1, jnp.int32), [NOISE])[0, 0]
            return jax.random.normal(key, (count, views.shape[-1]))

        embedded = Embedded(
            views=jnp.moveaxis(views, 1, 0),
            positive=recipe.positive,
            negative=recipe.negative,
            own=batch["index"],
            gather=lambda x: x if alone else jax.lax.all_gather(x, AXIS, axis=1, tiled=True),
            psum=lambda x: x if alone else jax.lax.psum(x, AXIS),
            artificial=artificial,
            params=params,
            label=batch.get("label"),
            masked=masked,
            local=None if local is None else (local, batch["attention_mask"][:, recipe.anchor.column]),
            present=batch["present"].T[jnp.array([view.column for view in recipe.views])] if mixed else None,
        )
        return total(embedded, recipe.objectives, settings["objective"])

    def loss_and_gradient(*args: Any) -> tuple[Float[Array, ""], Params]:
        with jax.default_matmul_precision(recipe.matmul_precision):
            return jax.value_and_grad(loss)(*args)

    if alone:
        return loss_and_gradient
    # `shard_map` sums the gradients of replicated parameters by itself, so there is no psum of them here.
    return jax.shard_map(loss_and_gradient, mesh=mesh, in_specs=(P(), P(), P(AXIS), P()), out_specs=(P(), P()))


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a batch that are encoded at a time, and the keys of everything that is drawn for each of them."""

    batch: Batch
    step: Int[AnyArray, ""]
    settings: Settings
    column_tokens: tuple[int, ...]  # see `Recipe.most_tokens`

    def keys(self, numbers: Sequence[int]) -> Key[Array, "V B"]:
        """A key for each number and each row."""
        return dropout_keys(self.settings["seed"], self.step, self.batch["index"], numbers)

    def tokens(self, columns: Sequence[int]) -> tuple[Int[Array, "PB T"], Int[Array, "PB T"]]:
        """The ids and the mask of P columns, stacked into P · B rows."""
        parts = self.batch["input_ids"], self.batch["attention_mask"]
        ids, mask = (jnp.concatenate([part[:, column] for column in columns]) for part in parts)
        return ids, mask

    def most_tokens(self, columns: Sequence[int]) -> int | None:
        """The maximum number of tokens of these columns; None if padding is computed too."""
        return sum(self.column_tokens[column] for column in columns) if self.column_tokens else None


def encode_views(
    graph: Graph, recipe: Recipe, params: Params, rows: Rows
) -> tuple[Float[Array, "B V D"], Float[Array, "B T _D"] | None]:
    """The embeddings of the recipe's views, and the features of the anchors' tokens if an objective needs them."""
    local: list[Float[Array, "B T _D"]] = []  # under each mask of the anchors

    def encode(tower: int, columns: list[int], masks: list[int] | None) -> Float[Array, "P B D"]:
        model = parameters.merge(graph, parameters.sentence_encoder(params, tower))
        ids, mask = rows.tokens(columns)
        features = model.token_features(
            ids,
            mask,
            dropout_keys=None if masks is None else rows.keys(masks).reshape(-1),
            dropout_rate=rows.settings["dropout"],
            most_tokens=rows.most_tokens(columns),
            first_only=recipe.pooler in FIRST_TOKEN and not recipe.local_features,
        )
        if recipe.local_features:
            tokens = jnp.split(features[-1].astype(jnp.float32), len(columns))
            numbers: Sequence[int | None] = masks or [None] * len(columns)
            for column, number, part in zip(columns, numbers, tokens, strict=True):
                if (tower, column) == (recipe.anchor.tower, recipe.anchor.column):
                    local.extend([part] if number in (recipe.anchor.masks or (None,)) else [])
        embeddings = model.pooled(features, mask, recipe.pooler, recipe.use_head)
        return embeddings.reshape(len(columns), -1, embeddings.shape[-1])

    def noise(number: int, shape: tuple[int, ...]) -> Float[Array, "B D"]:
        draw = jax.vmap(lambda key: jax.random.normal(key, shape[1:]))
        return jnp.sqrt(rows.settings["noise"]) * draw(rows.keys([NOISE + number])[0])

    views = jnp.moveaxis(embed(recipe.views, encode, noise), 0, 1)
    return views, jnp.mean(jnp.stack(local), axis=0) if local else None


MaskedLosses = tuple[Float[Array, " B"], Int[Array, " B"]]


def masked_token_losses(graph: Graph, recipe: Recipe, params: Params, rows: Rows) -> MaskedLosses:
    """For each row, the sum of the losses at its masked tokens and their number, by the first encoder."""
    assert recipe.language_model is not None
    columns = sorted({view.column for view in recipe.views if not view.tower})  # those that this encoder encodes
    ids, mask = rows.tokens(columns)
    table = params[parameters.WORD_EMBEDDING]
    masking = rows.keys([MASKING + column for column in columns]).reshape(-1)
    shown, selected = mask_tokens(masking, ids, mask, vocab_size=len(table), **recipe.language_model._asdict())
    encoder = parameters.merge(graph, parameters.sentence_encoder(params)).encoder
    hidden = encoder(
        shown,
        mask,
        dropout_keys=rows.keys([LANGUAGE_MODEL + column for column in columns]).reshape(-1),
        dropout_rate=rows.settings["dropout"],
        most_tokens=rows.most_tokens(columns),
    )[-1]
    # Logits only where they are needed: at half of the positions, three times as many as are masked on average.
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
    parts = jnp.where(valid, losses, 0.0), valid
    sums, counts = (jnp.sum(part, axis=1).reshape(len(columns), -1) for part in parts)  # (P, B)
    if "present" in rows.batch:  # a sentence that stands in for a missing one was counted in its own column
        there = rows.batch["present"].T[jnp.array(columns)]
        sums, counts = jnp.where(there, sums, 0.0), jnp.where(there, counts, 0)
    return jnp.sum(sums, axis=0), jnp.sum(counts, axis=0)
