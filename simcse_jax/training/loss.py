"""The loss of a batch and its gradient: the `shard_map` of a step is here and nowhere else.

In the order of a batch: encode views in chunks, project them, a second pass over tokens in chunks, sum. The
objectives say what is encoded and what is summed.
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

from simcse_jax.devices.mesh import row_axes
from simcse_jax.models import by_layer, parameters, partial
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.convolutions import PREFIX as CONVOLUTIONS
from simcse_jax.models.modules import PREFIX as MODULES
from simcse_jax.models.parameters import Params
from simcse_jax.models.products import rounding
from simcse_jax.models.projector import Projector, project
from simcse_jax.models.sentence_encoder import Graph, SentenceEncoder
from simcse_jax.objectives.chunks import in_chunks
from simcse_jax.objectives.embedded import Embedded, Psum
from simcse_jax.objectives.objective import Objective, SecondPassObjective, Term, TokenObjective
from simcse_jax.objectives.rows import Batch, Kept, Rows, StepSettings, Towers, dropout_keys, encode_views
from simcse_jax.objectives.tokens import ENCODER, GENERATOR, Network, Tokens
from simcse_jax.objectives.views import NOISE, Plan, View, flatten_views
from simcse_jax.training.gathering import make_gathering, product_dtype
from simcse_jax.training.recipe import Recipe

MEAN = -2  # the first number of the means of several texts, below those of texts and `negatives.NO_ANCHOR`
# Frozen parameters come last: no gradient, and None where there are none. Those of a generator have their own names,
# those of the sentence encoder a prefix (`models.partial.BASE`).
Loss = tuple[Float[Array, ""], dict[str, Float[Array, ""]]]  # and what the objectives measure, as OBJECTIVE/NAME
Gradient = Callable[..., tuple[Loss, Params]]  # (params, step, batch, settings, frozen=None, kept=None)


@contextlib.contextmanager
def product_precision(recipe: Recipe) -> Iterator[None]:
    """Sets the precision of products while a step is traced."""
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
    loss = functools.partial(global_loss, graph, recipe, None if mesh.size == 1 else row_axes(mesh))

    def local_gradient(loss: Callable[..., Loss], *args: Any) -> tuple[Loss, Params]:
        with product_precision(recipe):
            return jax.value_and_grad(loss, has_aux=True)(*args)

    def loss_and_gradient(
        params: Params,
        step: Int[AnyArray, ""],
        batch: Batch,
        settings: StepSettings,
        frozen: Params | None = None,
        kept: Kept | None = None,
    ) -> tuple[Loss, Params]:
        tokens = 0 if recipe.reads_words else batch["input_ids"].size // mesh.size
        trained, base = make_gathering(graph, params, frozen or {}, mesh, tokens, recipe.by_layer)

        def loss_of_parts(
            parts: Params, step: Array, batch: Batch, settings: StepSettings, frozen: Params, kept: Kept | None
        ) -> Loss:
            frozen, _ = base(frozen, batch)
            params, batch = trained(parts, batch)
            return loss(params, step, batch, settings, frozen, kept)

        function = functools.partial(local_gradient, loss_of_parts)
        if mesh.size > 1:
            # It sums the gradients of replicated parameters by itself, so there is no psum of them here.
            specs = (trained.split, P(), P(row_axes(mesh)), P(), base.split, P())
            function = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=(P(), trained.split))
        return function(params, step, batch, settings, frozen or {}, kept)

    return loss_and_gradient


def global_loss(
    graph: Graph,
    recipe: Recipe,
    axes: str | tuple[str, ...] | None,
    params: Params,
    step: Int[AnyArray, ""],
    batch: Batch,
    settings: StepSettings,
    frozen: Params,
    kept: Kept | None,
) -> Loss:
    """The loss of the global batch, on a device that has its part of the rows along `axes`, or (None) all of them."""
    params = partial.of_step(params, frozen)
    networks = make_networks(graph, recipe, params, frozen, len(batch["index"]))
    rows_of = functools.partial(make_rows, recipe, params, step, settings)
    psum = functools.partial(sum_over, axes)
    views, of_tokens = in_chunks(lambda batch: first_pass(networks, rows_of(batch)), recipe.chunk_size, batch)
    views = None if views is None else jnp.moveaxis(views, 1, 0)
    projected = None
    if recipe.projector and views is not None:
        projected = project_views(recipe.projector, params, recipe.views, recipe.plan, views, psum)
    seen = {term.name: projected if term.projected else views for term in recipe.objectives}
    for term in recipe.objectives:
        if isinstance(term.objective, SecondPassObjective):
            embeddings = select_embeddings(recipe, term.objective, seen[term.name])
            of_tokens[term.name] = second_pass(networks, term, rows_of, batch, embeddings)
    of_batch = Embedded(
        views={},
        own=batch["index"],
        gather=lambda x: jnp.asarray(x) if axes is None else jax.lax.all_gather(x, axes, axis=1, tiled=True),
        psum=psum,
        artificial=functools.partial(artificial_rows, settings["seed"], step),
        params=by_layer.whole(params),
        label=batch.get("label"),
        score=batch.get("score"),
    )
    terms = [
        (term, make_embedded(recipe, term.objective, of_term, seen[term.name], batch, of_tokens.get(term.name)))
        for term in recipe.objectives
        for of_term in [dataclasses.replace(of_batch, state=(kept or {}).get(term.name))]
    ]
    return total(terms, settings["objective"], recipe.sizes, settings.get("size_weights")), measure_terms(terms)


class StepNetworks(NamedTuple):
    """The networks of a step, whole on this device."""

    recipe: Recipe
    params: Params  # everything trained, with copies in the type of products, some as a `Part`
    towers: Towers  # which encode the views
    by_name: Mapping[str, Network]  # those that passes over tokens read

    def tokens(self, term: Term, rows: Rows, features: Mapping[View, Float[Array, "M B T D"]] | None = None) -> Tokens:
        """The input of an objective's pass over tokens."""
        read = {} if features is None else self.recipe.views_read_by(term.objective)
        return Tokens(
            rows,
            self.recipe.plan,
            self.by_name,
            by_layer.whole(self.params),
            term.fields(rows.settings["objective"]),
            {name: (features or {})[view] for name, view in read.items()},
        )


def make_networks(graph: Graph, recipe: Recipe, params: Params, frozen: Params, count: int) -> StepNetworks:
    """The networks with their parameters, as they are read for `count` examples of a device.

    In several chunks, products read copies that are made once. Of networks besides the encoder, the generator is
    frozen, and the names of the others' parameters have theirs as a prefix.
    """
    params = copy_for_products(graph, params, recipe, count)
    of_views = drop_shift_gradient(graph, params) if recipe.ignores_shift else params
    encoders: dict[int | str, SentenceEncoder] = {
        tower: parameters.merge(graph, parameters.sentence_encoder(of_views, tower))
        for tower in range(2 if recipe.plan.two_towers else 1)
    }
    by_name = {}
    for name, network in ((ENCODER, graph), *recipe.networks) if recipe.passes else ():
        own_params = params if name == ENCODER else parameters.subset(params, f"{name}.")
        own_params = copy_for_products(network, frozen, recipe, count) if name == GENERATOR else own_params
        encoder = parameters.merge(network, parameters.sentence_encoder(own_params)).encoder
        by_name[name] = Network(encoder, by_layer.whole(own_params))
    return StepNetworks(recipe, params, recipe.towers(encoders), by_name)


def copy_for_products(graph: Graph, params: Params, recipe: Recipe, count: int) -> Params:
    """The parameters, for `count` examples of a device; in several chunks with copies in the type of products."""
    if not 0 < recipe.chunk_size < count:
        return params
    return params | parameters.copies(params, product_dtype(graph, params))


def drop_shift_gradient(graph: Graph, params: Params) -> Params:
    """The parameters; a bias that the last layer adds to all embeddings gets no gradient.

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


def make_rows(recipe: Recipe, params: Params, step: Int[AnyArray, ""], settings: StepSettings, batch: Batch) -> Rows:
    """The rows of a batch with what is drawn for them."""
    words = len(params[parameters.WORD_EMBEDDING]) if recipe.masking else 0
    return Rows(batch, step, settings, recipe.most_tokens, recipe.drops_attention, recipe.masking, words)


def sum_over(axes: str | tuple[str, ...] | None, x: Any) -> Any:
    """The sum over the devices along `axes`; None: x itself."""
    return x if axes is None else jax.lax.psum(x, axes)


def first_pass(networks: StepNetworks, rows: Rows) -> tuple[Float[Array, "B V D"] | None, dict[str, Any]]:
    """The embeddings of all views, None without any, and the results of the objectives' passes over tokens, by name."""
    recipe, views = networks.recipe, None
    features: Mapping[View, Array] = {}
    if recipe.views:
        views, features = encode_views(networks.towers, rows, recipe.views, recipe.read_by_tokens)
    return views, {
        term.name: term.objective.tokens(networks.tokens(term, rows, features))
        for term in recipe.objectives
        if isinstance(term.objective, TokenObjective)
    }


def project_views(
    projector: Projector,
    params: Params,
    views: Sequence[View],
    plan: Plan,
    embeddings: Float[Array, "V B D"],
    psum: Psum,
) -> Float[Array, "V B P"]:
    """The embeddings of the views after the projector; those that share statistics are projected together."""
    projector_params = parameters.subset(params, parameters.PROJECTOR)
    projected: dict[int, jax.Array] = {}
    for group in group_by_statistics(projector, views, plan):
        rows = project(embeddings[jnp.array(group)], projector, projector_params, psum)
        projected |= dict(zip(group, rows, strict=True))
    return jnp.stack([projected[number] for number in range(len(views))])


def group_by_statistics(projector: Projector, views: Sequence[View], plan: Plan) -> list[list[int]]:
    """Groups of views, by their numbers. Views of other masks, for negative pairs, are a group of their own."""
    numbers = range(len(views))
    if projector.statistics != "together":
        return [[number] for number in numbers]
    of_pairs = flatten_views(plan.pair())
    pairs = [number for number in numbers if views[number] in of_pairs]
    unpaired = [number for number in numbers if number not in pairs]
    return [group for group in (pairs, unpaired) if group]


def second_pass(
    networks: StepNetworks,
    term: Term,
    rows_of: Callable[[Batch], Rows],
    batch: Batch,
    embeddings: Mapping[str, Float[Array, "..."]],
) -> Any:
    """The result of an objective's pass over tokens after the projector, computed in chunks."""
    objective, size = term.objective, networks.recipe.chunk_size
    assert isinstance(objective, SecondPassObjective)

    def draw(batch: Batch) -> Any:  # outside the chunks, so that the backward pass does not repeat it
        return objective.drawn(networks.tokens(term, rows_of(batch)))

    def find(batch: Batch, drawn: Any, embeddings: dict[str, Float[Array, "B D"]]) -> Any:
        return objective.second_pass(networks.tokens(term, rows_of(batch)), drawn, embeddings)

    drawn = in_chunks(draw, size, batch)
    lone = {name: rows for name, rows in embeddings.items() if rows.ndim == 2}
    return in_chunks(find, size, batch, drawn, lone)


def select_embeddings(recipe: Recipe, objective: Objective, views: Float[Array, "V B D"] | None) -> dict[str, Array]:
    """An objective's embeddings by its names for their views; {} without any view."""
    return {} if views is None else recipe.map_views(objective, lambda view: views[recipe.views.index(view)])


def artificial_rows(seed: Int[AnyArray, ""], step: Int[AnyArray, ""], count: int, size: int) -> Float[Array, "M D"]:
    """Standard normal rows of a step, which belong to no example."""
    key = dropout_keys(seed, step, jnp.full(1, -1, jnp.int32), [NOISE])[0, 0]
    return jax.random.normal(key, (count, size))


def make_embedded(
    recipe: Recipe,
    objective: Objective,
    of_batch: Embedded,
    views: Float[Array, "V B D"] | None,
    batch: Batch,
    tokens: Any = None,
) -> Embedded:
    """A batch as an objective sees it: its views, their data, and the results of its passes."""

    def teacher_rows(view: View) -> Float[Array, "B E"]:  # the mean where a view is one of several sentences
        return jnp.mean(batch["teacher"][:, jnp.array(view.columns)], axis=1)

    def present(view: View) -> Bool[Array, " B"]:
        return jnp.asarray(batch["present"])[:, view.column]

    def text_numbers(view: View) -> Int[Array, " B"]:  # the mean of several sentences has none, unless they are equal
        first, *other_columns = (jnp.asarray(batch["text"])[:, column] for column in view.columns)
        return functools.reduce(
            lambda number, other: jnp.where(number == other, number, MEAN - batch["index"]), other_columns, first
        )

    return dataclasses.replace(
        of_batch,
        views=select_embeddings(recipe, objective, views),
        tokens=tokens,
        teacher=recipe.map_views(objective, teacher_rows) if "teacher" in batch else None,
        present=recipe.map_views(objective, present) if "present" in batch else None,
        texts=recipe.map_views(objective, text_numbers) if "text" in batch else None,
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
            losses = [objective.loss(embedded.truncated(size), **fields) for size in sizes]
            loss += weight * sum(size_weights[place] * value for place, value in enumerate(losses))
        else:
            loss += weight * objective.loss(embedded, **fields)
    return loss


def measure_terms(terms: Sequence[tuple[Term, Embedded]]) -> dict[str, Float[Array, ""]]:
    """The measures of a batch by the objectives, as OBJECTIVE/NAME."""
    return {
        f"{term.name}/{name}": value
        for term, embedded in terms
        if isinstance(term.objective, SecondPassObjective)
        for name, value in term.objective.measures(embedded).items()
    }
