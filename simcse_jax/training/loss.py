"""The loss of a batch and its gradient: the `shard_map` of a step is here and nowhere else.

Encode in chunks, project, a second pass over tokens in chunks, sum. What is encoded, and what is summed, the
objectives say.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

from simcse_jax.devices.mesh import of_rows
from simcse_jax.models import by_layer, parameters, partial
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.changes import DRAWN, UNCHANGED, template_alone
from simcse_jax.models.config import MASK_TOKEN, MASKED
from simcse_jax.models.masking import Masking
from simcse_jax.models.model_types import AFTER_PADDING
from simcse_jax.models.parameters import Params
from simcse_jax.models.pooling import FIRST_TOKEN, pool
from simcse_jax.models.products import rounding
from simcse_jax.models.projector import Projector
from simcse_jax.models.sentence_encoder import Graph, SentenceEncoder
from simcse_jax.objectives.chunks import in_chunks
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.objective import Objective, SecondPassObjective, Term, TokenObjective
from simcse_jax.objectives.registry import BUILT_IN
from simcse_jax.objectives.rows import Batch, Kept, Rows, Settings, dropout_keys
from simcse_jax.objectives.tokens import ENCODER, Network, Tokens
from simcse_jax.objectives.views import CHANGE, DENOISING, NOISE, Pass, Plan, View, each_of
from simcse_jax.training.gathering import make_gathering, type_of_products
from simcse_jax.training.optimizer import ADAMW, Optimization
from simcse_jax.training.projection import project_views, without_shift
from simcse_jax.training.token_passes import Networks, make_networks, second_pass

MEAN = -2  # the first number of the means of several texts, below those of texts and `negatives.NO_ANCHOR`


class Recipe(NamedTuple):
    """What a compiled step is specialized on; everything else is data or `settings`."""

    pooler: str
    use_head: bool
    plan: Plan  # what objectives make their views of
    objectives: tuple[Term, ...]
    drops_attention: bool = True  # False: attention has a rate of its own, 0, and draws no masks
    chunk_size: int = 0  # examples encoded at a time on each device; 0: all of its part of the batch
    matmul_precision: str = "highest"  # of float32 products: highest, high or default (`jax.default_matmul_precision`)
    round_products: bool = False  # whether TPUs and GPUs write those of bfloat16 factors as bfloat16
    masking: Masking | None = None  # where an objective masks tokens
    projector: Projector | None = None  # between the embeddings and some objectives
    # The networks that objectives need besides the encoder, by name: `generator`, whose parameters are frozen, and
    # others, whose parameters have the name as a prefix.
    networks: Networks = ()
    # Of each column, the most tokens that the examples have that are encoded at a time (`Batches.sizes`): nothing is
    # computed of padding then; (): it is computed too.
    most_tokens: tuple[int, ...] = ()
    optimization: Optimization = ADAMW
    sizes: tuple[int, ...] = ()  # of the truncated embeddings that objectives see; (): the embeddings as they are
    by_layer: bool = False  # whether one layer at a time is whole, and computed again in the backward pass

    @property
    def passes(self) -> bool:
        """Whether an objective has a pass over tokens."""
        return any(isinstance(term.objective, TokenObjective | SecondPassObjective) for term in self.objectives)

    @property
    def views(self) -> tuple[View, ...]:
        """The views of all objectives, each once: (V, B, D) embeddings have them in this order."""
        return _views(self.objectives, self.plan)

    @property
    def reads_words(self) -> bool:
        """Whether anything but the encoder sees the ids of tokens, which must be those of words then.

        A language model's head scores all words, a generator, a change and a template may write words that are not in
        the batch, mask tokens are known by their id, and an objective from outside looks at what it likes.
        """
        changed = any(callable(view.change) for view in self.views)
        own = self.pooler == MASK_TOKEN or any(view.removed for view in self.views)  # ids that are written here
        return self.masking is not None or changed or own or any(term.name not in BUILT_IN for term in self.objectives)

    def read_by(self, objective: Objective) -> dict[str, View]:
        """The views whose tokens' features the objective's pass over tokens reads, by its names."""
        names = objective.features if isinstance(objective, TokenObjective) else ()
        views = objective.views(self.plan)
        return {name: view for name, view in views.items() if name in names and isinstance(view, View)}

    @property
    def read_by_tokens(self) -> list[View]:
        """All views whose tokens' features an objective reads."""
        return [view for term in self.objectives for view in self.read_by(term.objective).values()]

    def named(self, objective: Objective, of: Callable[[View], Array]) -> dict[str, Array]:
        """Something of each view by the objective's names for them; of several under one name a stack."""
        found: dict[str, Array] = {}
        for name, view in objective.views(self.plan).items():
            if isinstance(view, View):
                found[name] = of(view)
            elif view:
                found[name] = jnp.stack([of(one) for one in view])
        return found


@functools.lru_cache
def _views(objectives: tuple[Term, ...], plan: Plan) -> tuple[View, ...]:
    return tuple(dict.fromkeys(view for term in objectives for view in each_of(term.objective.views(plan))))


# Frozen parameters come last: no gradient, and None where there are none. Those of a generator have their own names,
# those of the sentence encoder a prefix (`models.partial.BASE`).
Loss = tuple[Float[Array, ""], dict[str, Float[Array, ""]]]  # and what the objectives measure, as OBJECTIVE/NAME
Gradient = Callable[..., tuple[Loss, Params]]  # (params, step, batch, settings, frozen=None, kept=None)


@contextlib.contextmanager
def products_of(recipe: Recipe) -> Iterator[None]:
    """While a step is traced: the precision of its products."""
    with jax.default_matmul_precision(recipe.matmul_precision), rounding(recipe.round_products):
        yield


def make_loss(graph: Graph, recipe: Recipe, mesh: Mesh) -> Gradient:
    """Builds loss_and_gradient(params, step, batch, settings, frozen=None, kept=None), of the global loss.

    Every device encodes its rows of the batch; embeddings are all-gathered *with* their gradients, so N devices
    compute what one device computes with the whole batch. The parameters, too, are gathered from the parts that the
    devices keep (`training.gathering`), and the gradient is split like them. One device alone has nothing to gather and
    to sum. `frozen` are the parameters of the network that replaces tokens, and those of the sentence encoder that do
    not train, `kept` what objectives keep (`TrainState.kept`).
    """
    loss = functools.partial(loss_of, graph, recipe, None if mesh.size == 1 else of_rows(mesh))

    def gradient_of(loss: Callable[..., Loss], *args: Any) -> tuple[Loss, Params]:
        with products_of(recipe):
            return jax.value_and_grad(loss, has_aux=True)(*args)

    def loss_and_gradient(
        params: Params,
        step: Int[AnyArray, ""],
        batch: Batch,
        settings: Settings,
        frozen: Params | None = None,
        kept: Kept | None = None,
    ) -> tuple[Loss, Params]:
        tokens = 0 if recipe.reads_words else batch["input_ids"].size // mesh.size
        trained, base = make_gathering(graph, params, frozen or {}, mesh, tokens, recipe.by_layer)

        def loss_of_parts(
            parts: Params, step: Array, batch: Batch, settings: Settings, frozen: Params, kept: Kept | None
        ) -> Loss:
            frozen, _ = base(frozen, batch)
            params, batch = trained(parts, batch)
            return loss(params, step, batch, settings, frozen, kept)

        function = functools.partial(gradient_of, loss_of_parts)
        if mesh.size > 1:
            # It sums the gradients of replicated parameters by itself, so there is no psum of them here.
            specs = (trained.split, P(), P(of_rows(mesh)), P(), base.split, P())
            function = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=(P(), trained.split))
        return function(params, step, batch, settings, frozen or {}, kept)

    return loss_and_gradient


def loss_of(
    graph: Graph,
    recipe: Recipe,
    axes: str | tuple[str, ...] | None,
    params: Params,
    step: Int[AnyArray, ""],
    batch: Batch,
    settings: Settings,
    frozen: Params,
    kept: Kept | None,
) -> Loss:
    """The loss of the global batch, on a device that has its part of the rows along `axes`, or (None) all of them."""
    params = partial.of_step(params, frozen)
    given = make_given(graph, recipe, params, frozen, len(batch["index"]))

    def psum(x: Any) -> Any:
        return x if axes is None else jax.lax.psum(x, axes)

    def rows_of(batch: Batch) -> Rows:
        return make_rows(recipe, params, step, batch, settings)

    def tokens_of(term: Term) -> Callable[[Batch], Tokens]:
        return lambda batch: given.tokens(term, rows_of(batch))

    def artificial(count: int, size: int) -> Float[Array, "M D"]:
        key = dropout_keys(settings["seed"], step, jnp.full(1, -1, jnp.int32), [NOISE])[0, 0]
        return jax.random.normal(key, (count, size))

    views, found = in_chunks(lambda batch: first_pass(given, rows_of(batch)), recipe.chunk_size, batch)
    views = None if views is None else jnp.moveaxis(views, 1, 0)
    projected = None
    if recipe.projector and views is not None:
        projected = project_views(recipe.projector, params, recipe.views, recipe.plan, views, psum)
    seen = {term.name: projected if term.projected else views for term in recipe.objectives}
    for term in recipe.objectives:
        if isinstance(term.objective, SecondPassObjective):
            embeddings = embeddings_of(recipe, term.objective, seen[term.name])
            found[term.name] = second_pass(term.objective, tokens_of(term), recipe.chunk_size, batch, embeddings)
    of_batch = Embedded(
        views={},
        own=batch["index"],
        gather=lambda x: jnp.asarray(x) if axes is None else jax.lax.all_gather(x, axes, axis=1, tiled=True),
        psum=psum,
        artificial=artificial,
        params=by_layer.whole(params),
        label=batch.get("label"),
        score=batch.get("score"),
    )
    terms = [
        (term, seen_by(recipe, term.objective, own, seen[term.name], batch, found.get(term.name)))
        for term in recipe.objectives
        for own in [dataclasses.replace(of_batch, state=(kept or {}).get(term.name))]
    ]
    return total(terms, settings["objective"], recipe.sizes, settings.get("size_weights")), measured(terms)


def make_rows(recipe: Recipe, params: Params, step: Int[AnyArray, ""], batch: Batch, settings: Settings) -> Rows:
    """The rows of a batch with what is drawn for them."""
    words = len(params[parameters.WORD_EMBEDDING]) if recipe.masking else 0
    return Rows(batch, step, settings, recipe.most_tokens, recipe.drops_attention, recipe.masking, words)


class Given(NamedTuple):
    """What a step computes with, whole on this device."""

    recipe: Recipe
    params: Params  # everything trained, with copies in the type of products, some as a `Part`
    towers: Mapping[int | str, SentenceEncoder]  # which encode the views
    networks: Mapping[str, Network]  # that passes over tokens read, by name

    def tokens(self, term: Term, rows: Rows, features: Mapping[View, Float[Array, "M B T D"]] | None = None) -> Tokens:
        """What an objective's pass over tokens is handed."""
        own = {} if features is None else self.recipe.read_by(term.objective)
        return Tokens(
            rows,
            self.recipe.plan,
            self.networks,
            by_layer.whole(self.params),
            term.fields(rows.settings["objective"]),
            {name: (features or {})[view] for name, view in own.items()},
        )


def make_given(graph: Graph, recipe: Recipe, params: Params, frozen: Params, count: int) -> Given:
    """The networks with their parameters, as they are read for `count` examples of a device.

    In several chunks, products read copies that are made once.
    """

    read = functools.partial(with_copies, recipe=recipe, count=count)
    params = read(graph, params)
    of_views = without_shift(graph, params) if ignores_shift(recipe) else params
    towers: dict[int | str, SentenceEncoder] = {
        tower: parameters.merge(graph, parameters.sentence_encoder(of_views, tower))
        for tower in range(2 if recipe.plan.two_towers else 1)
    }
    graphs = ((ENCODER, graph), *recipe.networks) if recipe.passes else ()
    return Given(recipe, params, towers, make_networks(graphs, params, frozen, read))


def with_copies(graph: Graph, params: Params, recipe: Recipe, count: int) -> Params:
    """The parameters, for `count` examples of a device; in several chunks with copies in the type of products."""
    if not 0 < recipe.chunk_size < count:
        return params
    return params | parameters.copies(params, type_of_products(graph, params))


def first_pass(given: Given, rows: Rows) -> tuple[Float[Array, "B V D"] | None, dict[str, Any]]:
    """The embeddings of all views, None without any, and what the objectives' passes over tokens find, by name."""
    own = given.recipe.views
    views, features = encode_views(given, rows, own) if own else (None, {})
    found = {
        term.name: term.objective.tokens(given.tokens(term, rows, features))
        for term in given.recipe.objectives
        if isinstance(term.objective, TokenObjective)
    }
    return views, found


def encode_views(
    given: Given, rows: Rows, views: Sequence[View]
) -> tuple[Float[Array, "B V D"], dict[View, Float[Array, "M B T D"]]]:
    """The embeddings of views, and the last layer of those whose tokens' features an objective reads."""
    recipe = given.recipe
    wanted, features = recipe.read_by_tokens, {}

    def encode(each: Pass, columns: list[int], masks: list[int], changes: list[int]) -> Float[Array, "P B D"]:
        model = given.towers[each.tower]
        ids, mask = rows.read(columns, each.length)
        change, needed = UNCHANGED, [view for view in wanted if view.encoded_in == each]
        if each.change == MASKED:
            ids, _ = rows.masked(columns)
        elif each.change != "none":
            keys = rows.keys([CHANGE + number for number in changes]).reshape(-1)
        most_tokens = rows.most_tokens(columns)
        if callable(each.change):
            ids, mask = each.change(keys, given_ids := ids, mask)
            if most_tokens is not None:
                most_tokens += ids.size - given_ids.size  # each row may have as many tokens more as it has places
        elif each.change in DRAWN:
            change = DRAWN[each.change](keys, mask, model.encoder.config.hidden_size, rows.settings["cutoff"])

        def features_of(ids: Array, mask: Array, numbers: list[int], **options: Any) -> tuple[Array, ...]:
            drawn = rows.keys(numbers).reshape(-1) if each.dropout else None
            return model.token_features(ids, mask, dropout_keys=drawn, **rows.rates(each.rate), **options)

        only = recipe.pooler in FIRST_TOKEN and not needed
        layers = features_of(ids, mask, masks, most_tokens=most_tokens, first_only=only, change=change)
        draws = list(zip(columns, masks, changes, strict=True))
        for view in needed:
            tokens = jnp.split(layers[-1], len(columns))
            features[view] = jnp.stack([tokens[draws.index(draw)] for draw in view.draws])
        removed = None
        if each.removed:
            alone, there, placed = template_alone(
                each.removed, jnp.sum(mask > 0, axis=1), first_position(model, recipe)
            )
            of_template = features_of(alone, there, [DENOISING + number for number in masks], change=placed)
            removed = pool(of_template, there, recipe.pooler, is_mask_token=model.is_mask_token(alone))
        modules, of_mask = model.encoder.config.modules, model.is_mask_token(ids)
        last: dict[str, Any] = {"is_mask_token": of_mask, "removed": removed}
        embeddings = model.pooled(layers, mask, recipe.pooler, recipe.use_head, modules, **last)
        return embeddings.reshape(len(columns), -1, embeddings.shape[-1])

    def noise(number: int, shape: tuple[int, ...]) -> Float[Array, "B D"]:
        draw = jax.vmap(lambda key: jax.random.normal(key, shape[1:]))
        return jnp.sqrt(rows.settings["noise"]) * draw(rows.keys([NOISE + number])[0])

    return jnp.moveaxis(embed(views, encode, noise), 0, 1), features


def first_position(model: SentenceEncoder, recipe: Recipe) -> int:
    """What the positions of a template alone begin with; see `models.config.DENOISING`."""
    config = model.encoder.config
    from_the_first_row = recipe.plan.denoising == "released" and config.positions == AFTER_PADDING
    return -1 - config.pad_token_id if from_the_first_row else 0


def embed(
    views: Sequence[View],
    encode: Callable[[Pass, list[int], list[int], list[int]], jax.Array],
    noise: Callable[[int, tuple[int, ...]], jax.Array],
) -> Float[Array, "V B D"]:
    """(V, B, D) embeddings of the views; an encoding that several views need is done once.

    Args:
      views: V of them.
      encode: encode(pass, columns, masks, changes) -> (P, B, D), P columns under as many masks and changes, by their
        numbers, which do not count in a pass without masks or without a change.
      noise: noise(number, (B, D)), which is added to a noisy view.
    """
    passes: dict[Pass, dict[tuple[int, int, int], None]] = {}
    for view in views:
        for draw in view.draws:
            passes.setdefault(view.encoded_in, {})[draw] = None
    encoded: dict[tuple[Pass, tuple[int, int, int]], jax.Array] = {}
    for each, wanted in passes.items():
        columns, masks, changes = (list(part) for part in zip(*wanted, strict=True))
        embeddings = encode(each, columns, masks, changes)
        encoded |= {(each, key): embedding for key, embedding in zip(wanted, embeddings, strict=True)}

    def finish(view: View) -> jax.Array:
        parts = [encoded[view.encoded_in, draw] for draw in view.draws]
        embedding = parts[0] if len(parts) == 1 else jnp.mean(jnp.stack(parts), axis=0)
        return embedding if view.noise is None else embedding + noise(view.noise, embedding.shape)

    return jnp.stack([finish(view) for view in views])


def ignores_shift(recipe: Recipe) -> bool:
    """Whether a vector that is added to all hidden states of the last layer changes no loss of embeddings.

    The embedding of a template alone has it too, and is taken away before a head. Batch norm takes it away again, but
    not if a head comes in between, nor if two encoders have a vector each and share statistics. Neither is so with the
    pooler avg_sqrt, which adds it √T times, and where anchors with masked tokens share their pass with the loss of
    these tokens.
    """
    unread = recipe.pooler != "avg_sqrt" and not recipe.read_by_tokens
    if recipe.views and all(view.removed for view in recipe.views):
        return unread
    if recipe.projector is None or not recipe.projector.ignores_shift:
        return False
    projected = all(term.projected for term in recipe.objectives if term.objective.views(recipe.plan))
    together = recipe.projector.statistics == "together"
    differ = together and any(view.tower for view in recipe.views)
    return projected and unread and not (recipe.use_head or differ)


def embeddings_of(recipe: Recipe, objective: Objective, views: Float[Array, "V B D"] | None) -> dict[str, Array]:
    """An objective's embeddings by its names for their views; {} without any view."""
    return {} if views is None else recipe.named(objective, lambda view: views[recipe.views.index(view)])


def seen_by(
    recipe: Recipe,
    objective: Objective,
    of_batch: Embedded,
    views: Float[Array, "V B D"] | None,
    batch: Batch,
    tokens: Any = None,
) -> Embedded:
    """What an objective sees of a batch: its views, what the data have of them, and what its passes found."""

    def taught(view: View) -> Float[Array, "B E"]:  # the mean where a view is one of several sentences
        return jnp.mean(batch["teacher"][:, jnp.array(view.columns)], axis=1)

    def present(view: View) -> Bool[Array, " B"]:
        return jnp.asarray(batch["present"])[:, view.column]

    def text(view: View) -> Int[Array, " B"]:  # the mean of several sentences has none, unless they are equal
        first, *others = (jnp.asarray(batch["text"])[:, column] for column in view.columns)
        return functools.reduce(lambda one, other: jnp.where(one == other, one, MEAN - batch["index"]), others, first)

    return dataclasses.replace(
        of_batch,
        views=embeddings_of(recipe, objective, views),
        tokens=tokens,
        teacher=recipe.named(objective, taught) if "teacher" in batch else None,
        present=recipe.named(objective, present) if "present" in batch else None,
        texts=recipe.named(objective, text) if "text" in batch else None,
    )


def total(
    terms: Sequence[tuple[Term, Embedded]],
    numbers: Mapping[str, Mapping[str, Any]],
    sizes: Sequence[int] = (),
    size_weights: Float[AnyArray, " S"] | None = None,
) -> Float[Array, ""]:
    """Σ weight · objective over the global batch, the same scalar on every device.

    With sizes, an objective of embeddings is itself a weighted sum over embeddings of which the first elements are
    left, Matryoshka embeddings (Kusupati et al. 2022, arXiv:2205.13147, equation 1):

        ℓ = Σ_m c_m ℓ(h_{1:m})

    Args:
      terms: the objectives to sum, each with what it sees of the batch.
      numbers: each objective's scalar fields by name, including its `weight`.
      sizes: m, numbers of elements; empty: the embeddings as they are.
      size_weights: (S,) c_m; needed with sizes.
    """
    loss = jnp.zeros(())
    for term, embedded in terms:
        objective, fields = term.objective, term.fields(numbers)
        weight = fields.pop("weight")
        if sizes and objective.truncatable:
            assert size_weights is not None
            each = [objective.loss(embedded.truncated(size), **fields) for size in sizes]
            loss += weight * sum(size_weights[place] * one for place, one in enumerate(each))
        else:
            loss += weight * objective.loss(embedded, **fields)
    return loss


def measured(terms: Sequence[tuple[Term, Embedded]]) -> dict[str, Float[Array, ""]]:
    """What the objectives measure of a batch, as OBJECTIVE/NAME."""
    return {
        f"{term.name}/{name}": value
        for term, embedded in terms
        if isinstance(term.objective, SecondPassObjective)
        for name, value in term.objective.measures(embedded).items()
    }
