"""The loss of a batch and its gradient: the `shard_map` of a step is here and nowhere else."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from simcse_jax.devices.chunks import in_chunks
from simcse_jax.devices.mesh import AXIS
from simcse_jax.models import parameters, partial
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.changes import DRAWN, UNCHANGED
from simcse_jax.models.config import MASKED
from simcse_jax.models.convolutions import PREFIX as CONVOLUTIONS
from simcse_jax.models.parameters import Params
from simcse_jax.models.pooling import FIRST_TOKEN
from simcse_jax.models.products import rounding
from simcse_jax.models.projector import Projector, project
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives import masked_lm, replaced_token_detection
from simcse_jax.objectives.objective import Embedded, Group, Psum
from simcse_jax.objectives.registry import Term, sees_views, total
from simcse_jax.training.gathering import make_gathering, type_of_products
from simcse_jax.training.rows import Batch, Rows, Settings
from simcse_jax.training.token_losses import (
    LanguageModel,
    Losses,
    Replacement,
    guess_tokens,
    mask_columns,
    masked_token_losses,
    replace_tokens,
    replaced_token_losses,
)
from simcse_jax.training.views import CHANGE, NOISE, Pass, View, dropout_keys, embed


class Optimization(NamedTuple):
    """What an update is compiled for; its numbers are settings."""

    optimizer: str = "adamw"
    bias_correction: bool = True  # of AdamW's means
    schedule: str = "linear"
    mu_dtype: str = "float32"  # in which AdamW keeps the mean of gradients


ADAMW = Optimization()


class Recipe(NamedTuple):
    """What a compiled step is specialized on; everything else is data or `settings`."""

    pooler: str
    use_head: bool
    views: tuple[View, ...]  # the embeddings of each example that are made
    positive: Group  # which of them make up the positive pairs (see `views.plan`)
    negative: Group  # and the negative pairs
    objectives: tuple[Term, ...]
    drops_attention: bool = True  # False: attention has a rate of its own, 0, and draws no masks
    chunk_size: int = 0  # examples encoded at a time on each device; 0: all of its part of the batch
    matmul_precision: str = "highest"  # of float32 products: highest, high or default (`jax.default_matmul_precision`)
    round_products: bool = False  # whether TPUs and GPUs write those of bfloat16 factors as bfloat16
    local_features: bool = False  # whether an objective needs those of the anchors' tokens
    language_model: LanguageModel | None = None  # where an objective needs masked tokens
    projector: Projector | None = None  # between the embeddings and some objectives
    replacement: Replacement | None = None  # where an objective needs replaced tokens
    # Of each column, the most tokens that the examples have that are encoded at a time (`Batches.sizes`): nothing is
    # computed of padding then; (): it is computed too.
    most_tokens: tuple[int, ...] = ()
    optimization: Optimization = ADAMW
    sizes: tuple[int, ...] = ()  # of the truncated embeddings that objectives see; (): the embeddings as they are

    @property
    def anchor(self) -> View:
        """The view of the anchors of the positive pairs."""
        return self.views[self.positive.anchor]


# Frozen parameters come last: no gradient, and None where there are none. Those of a generator have their own names,
# those of the sentence encoder a prefix (`models.partial.BASE`).
Gradient = Callable[..., tuple[Float[Array, ""], Params]]  # (params, step, batch, settings, frozen=None)


def make_loss(graph: Graph, recipe: Recipe, mesh: Mesh) -> Gradient:
    """Builds loss_and_gradient(params, step, batch, settings, frozen=None), the gradient being that of the global loss.

    Every device encodes its rows of the batch; embeddings are all-gathered *with* their gradients, so N devices
    compute what one device computes with the whole batch. The parameters, too, are gathered from the parts that the
    devices keep (`devices.parts`), and the gradient is split like them. One device alone has nothing to gather and to
    sum. `frozen` are the parameters of the network that replaces tokens, and those of the sentence encoder that do not
    train.
    """
    alone = mesh.size == 1
    shift_is_free = ignores_shift(recipe)
    # A language model's head scores all words; a generator writes words that are not in the batch.
    reads_other_words = recipe.language_model is not None or recipe.replacement is not None

    def psum(x: Any) -> Any:
        return x if alone else jax.lax.psum(x, AXIS)

    def loss(
        params: Params, step: Int[AnyArray, ""], batch: Batch, settings: Settings, frozen: Params | None
    ) -> Float[Array, ""]:
        base = parameters.subset(frozen or {}, partial.BASE)
        if not alone:
            base = jax.lax.pcast(base, AXIS, to="varying")
        params = partial.whole(params, base)
        read = read_in_chunks(graph, recipe, params, len(batch["index"]))

        def rows_of(batch: Batch) -> Rows:
            return Rows(batch, step, settings, recipe.most_tokens, recipe.drops_attention)

        def encode(batch: Batch) -> tuple[Losses | None, Float[Array, "B V D"], Float[Array, "B T _D"] | None]:
            rows = rows_of(batch)
            views, local, guessed = encode_views(
                graph, recipe, without_shift(graph, read) if shift_is_free else read, rows
            )
            if recipe.language_model is None or guessed:
                return guessed, views, local
            # Those of this encoder.
            columns = sorted({column for view in recipe.views if not view.tower for column in view.columns})
            return masked_token_losses(graph, recipe.language_model, columns, read, rows), views, local

        mixed = "present" in batch  # rows of sources with different columns
        masked, views, local = in_chunks(encode, recipe.chunk_size, batch)

        def artificial(count: int, size: int) -> Float[Array, "M D"]:
            key = dropout_keys(settings["seed"], step, jnp.full(1, -1, jnp.int32), [NOISE])[0, 0]
            return jax.random.normal(key, (count, size))

        views = jnp.moveaxis(views, 1, 0)
        embedded = Embedded(
            views=views,
            positive=recipe.positive,
            negative=recipe.negative,
            own=batch["index"],
            gather=lambda x: x if alone else jax.lax.all_gather(x, AXIS, axis=1, tiled=True),
            psum=psum,
            artificial=artificial,
            params=params,
            label=batch.get("label"),
            score=batch.get("score"),
            teacher=taught_views(recipe, batch["teacher"]) if "teacher" in batch else None,
            token_losses={} if masked is None else {masked_lm.NAME: masked},
            local=None if local is None else (local, rows_of(batch).tokens([recipe.anchor.column], local.shape[1])[1]),
            present=batch["present"].T[jnp.array([view.column for view in recipe.views])] if mixed else None,
            projected=project_views(recipe, params, views, psum) if recipe.projector else None,
        )
        if recipe.replacement is not None:
            assert frozen is not None
            generator = read_in_chunks(recipe.replacement.generator, recipe, frozen, len(batch["index"]))
            found = find_replaced(recipe, read, generator, embedded, batch, rows_of)
            embedded = embedded._replace(token_losses={**embedded.token_losses, replaced_token_detection.NAME: found})
        return total(embedded, recipe.objectives, settings["objective"], recipe.sizes, settings.get("size_weights"))

    def loss_and_gradient(
        params: Params, step: Int[AnyArray, ""], batch: Batch, settings: Settings, frozen: Params | None = None
    ) -> tuple[Float[Array, ""], Params]:
        def gradient_of(loss: Callable[..., Float[Array, ""]], *args: Any) -> tuple[Float[Array, ""], Params]:
            with jax.default_matmul_precision(recipe.matmul_precision), rounding(recipe.round_products):
                return jax.value_and_grad(loss)(*args)

        if alone:
            return gradient_of(loss, params, step, batch, settings, frozen)
        tokens = 0 if reads_other_words else batch["input_ids"].size // mesh.size
        gathered = make_gathering(graph, params, frozen, mesh, tokens)

        def loss_of_parts(parts: Params, step: Int[AnyArray, ""], batch: Batch, *others: Any) -> Float[Array, ""]:
            params, batch = gathered(parts, batch)
            return loss(params, step, batch, *others)

        # It sums the gradients of replicated parameters by itself, so there is no psum of them here.
        specs = (gathered.split, P(), P(AXIS), P(), P())
        function = functools.partial(gradient_of, loss_of_parts)
        on_all = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=(P(), gathered.split))
        return on_all(params, step, batch, settings, frozen)

    return loss_and_gradient


def read_in_chunks(graph: Graph, recipe: Recipe, params: Params, count: int) -> Params:
    """The parameters as networks read them for `count` examples: in several chunks, products read copies made once."""
    if not 0 < recipe.chunk_size < count:
        return params
    return params | parameters.copies(params, type_of_products(graph, params))


def taught_views(recipe: Recipe, teacher: Float[AnyArray, "B C E"]) -> Float[Array, "V B E"]:
    """The teacher's embedding of each view's sentence; the mean of them where a view is one of several sentences."""
    return jnp.stack([jnp.mean(teacher[:, jnp.array(view.columns)], axis=1) for view in recipe.views])


def encode_views(
    graph: Graph, recipe: Recipe, params: Params, rows: Rows
) -> tuple[Float[Array, "B V D"], Float[Array, "B T _D"] | None, Losses | None]:
    """The embeddings of the recipe's views, and what their passes give in addition.

    That are the features of the anchors' tokens if an objective needs them, and the losses at masked tokens if the
    anchors are encoded with masked tokens.
    """
    anchor, local = recipe.anchor, []  # features under each mask of the anchors
    guessed: Losses | None = None
    anchors = [(anchor.encoded_in, draw) for draw in anchor.draws]

    def encode(each: Pass, columns: list[int], masks: list[int], changes: list[int]) -> Float[Array, "P B D"]:
        model = parameters.merge(graph, parameters.sentence_encoder(params, each.tower))
        ids, mask = rows.tokens(columns, each.length)
        nonlocal guessed
        change = UNCHANGED
        if each.change == MASKED:
            assert recipe.language_model is not None  # `config.checks`
            ids, selected = mask_columns(recipe.language_model, columns, params, rows)
        elif each.change != "none":
            keys = rows.keys([CHANGE + number for number in changes]).reshape(-1)
            change = DRAWN[each.change](keys, mask, model.encoder.config.hidden_size, rows.settings["cutoff"])
        features = model.token_features(
            ids,
            mask,
            dropout_keys=rows.keys(masks).reshape(-1) if each.masked else None,
            **rows.rates(each.rate),
            most_tokens=rows.most_tokens(columns),
            first_only=recipe.pooler in FIRST_TOKEN and not recipe.local_features and each.change != MASKED,
            change=change,
        )
        if each.change == MASKED:
            guessed = guess_tokens(model.encoder.config, features[-1], selected, columns, params, rows)
        if recipe.local_features:
            tokens = jnp.split(features[-1].astype(jnp.float32), len(columns))
            for number, part in zip(zip(columns, masks, changes, strict=True), tokens, strict=True):
                local.extend([part] if (each, number) in anchors else [])
        embeddings = model.pooled(features, mask, recipe.pooler, recipe.use_head)
        return embeddings.reshape(len(columns), -1, embeddings.shape[-1])

    def noise(number: int, shape: tuple[int, ...]) -> Float[Array, "B D"]:
        draw = jax.vmap(lambda key: jax.random.normal(key, shape[1:]))
        return jnp.sqrt(rows.settings["noise"]) * draw(rows.keys([NOISE + number])[0])

    views = jnp.moveaxis(embed(recipe.views, encode, noise), 0, 1)
    return views, jnp.mean(jnp.stack(local), axis=0) if local else None, guessed


def ignores_shift(recipe: Recipe) -> bool:
    """Whether a vector that is added to all hidden states of the last layer changes no loss of embeddings.

    Batch norm takes it away again, but not if a head or the pooler avg_sqrt, which adds it √T times, comes in between.
    Two encoders have a vector each, and statistics of both together leave their difference. And anchors with masked
    tokens share their pass with the loss of these tokens.
    """
    projected = all(term.projected for term in recipe.objectives if sees_views(term.name))
    if recipe.projector is None or not recipe.projector.ignores_shift:
        return False
    together = recipe.projector.statistics == "together"
    differ = together and any(view.tower for view in recipe.views)
    masked = any(view.change == MASKED for view in recipe.views)
    return projected and not (recipe.use_head or recipe.pooler == "avg_sqrt" or differ or masked)


def without_shift(graph: Graph, params: Params) -> Params:
    """The parameters, without the gradient of the bias that the last layer adds to all embeddings, if it does.

    Where batch norm takes that away again, the gradient is zero. Left to rounding it would be noise, which Adam blows
    up to full steps that differ from machine to machine.
    """
    if any(name.startswith(CONVOLUTIONS) for name in params):  # what they read has an end
        return params
    config = parameters.merge(graph, parameters.sentence_encoder(params)).encoder.config
    groups = config.groups
    if groups.count(groups[-1]) > 1:  # layers before the last one add the same bias
        return params
    last = "encoder.final_norm.bias" if config.pre_norm else f"encoder.layers.{groups[-1]}.output_norm.bias"
    names = {last, parameters.SECOND + last} & params.keys()
    return params | {name: jax.lax.stop_gradient(params[name]) for name in names}


def project_views(recipe: Recipe, params: Params, views: Float[Array, "V B D"], psum: Psum) -> Float[Array, "V B P"]:
    """The views after the projector. Those of other masks, for negative pairs, share no statistics with the pairs'."""
    assert recipe.projector is not None
    numbers = range(len(views))
    groups = [[number] for number in numbers]
    if recipe.projector.statistics == "together":
        anchor, positive, hard_negatives = recipe.positive
        pairs = [number for number in numbers if number in (anchor, positive, *hard_negatives)]
        groups = [pairs, [number for number in numbers if number not in pairs]]
    own = parameters.subset(params, parameters.PROJECTOR)
    projected: dict[int, jax.Array] = {}
    for group in filter(None, groups):
        rows = project(views[jnp.array(group)], recipe.projector, own, psum)
        projected |= dict(zip(group, rows, strict=True))
    return jnp.stack([projected[number] for number in numbers])


def find_replaced(
    recipe: Recipe,
    params: Params,
    frozen: Params,
    embedded: Embedded,
    batch: Batch,
    rows_of: Callable[[Batch], Rows],
) -> Losses:
    """The losses of replaced tokens, for the pairs' two sentences, in a second pass over the batch."""
    replacement = recipe.replacement
    assert replacement is not None
    columns = [recipe.views[member].column for member in (recipe.positive.anchor, recipe.positive.positive)]
    projected = any(term.projected for term in recipe.objectives if term.name == replaced_token_detection.NAME)
    sentences = jnp.stack(embedded.seen(projected).pair, axis=1)

    def replace(batch: Batch) -> Int[Array, "B P T"]:  # apart, so that the backward pass does not do it again
        return replace_tokens(replacement, columns, frozen, rows_of(batch))

    def find(batch: Batch, replaced: Int[Array, "B P T"], sentences: Float[Array, "B P D"]) -> Losses:
        return replaced_token_losses(replacement, columns, params, rows_of(batch), replaced, sentences)

    replaced = in_chunks(replace, recipe.chunk_size, batch)
    return in_chunks(find, recipe.chunk_size, batch, replaced, sentences)
