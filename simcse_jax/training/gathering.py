"""The parameters of a step, from the parts that the devices keep (`devices.parts`).

All are gathered at the start of the step; or, by layer, each layer's when it computes, and word embeddings at their
lookup.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from simcse_jax.devices.mesh import AXIS, replicated_sharding, row_axes
from simcse_jax.devices.parts import (
    gather,
    gather_rounded,
    gather_rows,
    is_exchange_cheaper,
    rounded,
    shardings,
    spread,
)
from simcse_jax.models import parameters, partial
from simcse_jax.models.by_layer import Part
from simcse_jax.models.model_types import AFTER_PADDING
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives.rows import Batch

SMALL = 2**16  # numbers: smaller arrays are whole throughout a step by layer
LAYER = "encoder.layers."  # in the names of a layer's parameters


class Placement(NamedTuple):
    """Where the parts of a split parameter are, and how it becomes whole: equal for those of layers in a loop."""

    split: P
    devices: int  # the number of parts

    def gather(self, sent: jax.Array, part: jax.Array) -> jax.Array:
        """The whole array, from what each device sends of its part."""
        return gather_rounded(sent, part, self.split)

    def rows(self, part: jax.Array, numbers: Int[Array, "*tokens"]) -> Float[Array, "*tokens D"]:
        """Rows of a table; the devices exchange only these where that is cheaper."""
        length = len(part) * (self.devices if self.split and self.split[0] == AXIS else 1)
        if not is_exchange_cheaper(length, self.split, numbers.size, self.devices):
            return jnp.take(self.gather(part, part), numbers, axis=0)
        return gather_rows(part, self.split, numbers.reshape(-1)).reshape(*numbers.shape, -1)


class Gathering(NamedTuple):
    """How each parameter, by name, is gathered from its parts."""

    mesh: Mesh
    split: dict[str, P]  # how each parameter is split
    sent: dict[str, jnp.dtype]  # the type in which it is gathered
    tables: tuple[str, ...]  # each device gathers only the rows of its tokens
    late: frozenset[str]  # gathered where they are read
    padding: int  # the id of padding, if the encoder asks whether a token is that; otherwise -1

    def __call__(self, parts: Mapping[str, jax.Array], batch: Batch) -> tuple[Params, Batch]:
        """Within `shard_map`: the parameters and the batch, of this device.

        Of `tables` it has the rows of the batch's tokens, in their order, and then the ids of the batch are 0, 1, 2, ….
        Where an encoder asks which tokens are padding, rows of padding come first, up to its id, which it keeps.
        """
        ids = jnp.asarray(batch["input_ids"])
        first = jnp.full(self.padding + 1, self.padding, ids.dtype)
        numbers = jnp.concatenate([first, ids.reshape(-1)])
        params = {name: self.read(name, part, numbers) for name, part in parts.items()}
        if not self.tables:
            return params, batch
        places = jnp.arange(len(first), len(numbers), dtype=ids.dtype).reshape(ids.shape)
        places = jax.lax.pcast(places, row_axes(self.mesh), to="varying")
        return params, {**batch, "input_ids": jnp.where(ids == self.padding, ids, places)}

    def read(self, name: str, part: jax.Array, numbers: Int[Array, " N"]) -> Any:
        """The parameter `name`, whole or (`late`) as a `Part`; or its rows with these numbers."""
        split, devices = self.split[name], self.mesh.shape[AXIS]
        if self.mesh.size > 1:
            part = spread(part, split, self.mesh)
        if name in self.tables:
            return gather_rows(part, split, numbers)
        if name in self.late:
            return Part(rounded(part, self.sent[name]), part, Placement(split, devices))
        return gather(part, split, self.sent[name])


@dataclasses.dataclass(frozen=True)
class ByLayer:
    """Compiles an `Embedder`'s function as `mesh.compile_by_rows` does, for split parameters, gathered by layer."""

    graph: Graph
    mesh: Mesh

    def __call__(self, function: Callable[..., jax.Array], sharding: NamedSharding | None) -> jax.stages.Wrapped:
        """The compiled function(parameters, *arrays)."""
        rows = P(row_axes(self.mesh))

        def compute(params: Params, *arrays: jax.Array) -> jax.Array:
            gathering, _ = make_gathering(self.graph, params, {}, self.mesh, tokens=1, by_layer=True)
            none = jnp.zeros(0, jnp.int32)  # there are no `tables`

            def compute_rows(parts: Params, *arrays: jax.Array) -> jax.Array:
                return function({name: gathering.read(name, part, none) for name, part in parts.items()}, *arrays)

            specs = (gathering.split, *[rows] * len(arrays))
            return jax.shard_map(compute_rows, mesh=self.mesh, in_specs=specs, out_specs=rows)(params, *arrays)

        return jax.jit(compute, out_shardings=sharding)


def make_gathering(
    graph: Graph, params: Params, frozen: Params, mesh: Mesh, tokens: int, by_layer: bool = False
) -> tuple[Gathering, Gathering]:
    """Chooses how each parameter of a step is gathered: the trained ones, and the frozen ones.

    `tokens` is the number of places for tokens in each device's part of the batch, if the networks read no other rows
    of the word embeddings than those of the batch's tokens; otherwise 0.
    """
    # What only products read is sent in the products' type. They would round it anyway, so no bit of the loss changes.
    params_of_step = partial.of_step(params, frozen)
    dtype, padding = product_dtype(graph, params_of_step), padding_id(graph, params_of_step)

    def make(arrays: Params, kept: Mapping[str, NamedSharding], tokens: int) -> Gathering:
        split = {name: sharding.spec for name, sharding in kept.items()}
        words = [name for name in arrays if name.endswith(parameters.WORD_EMBEDDING)]
        rows = [name for name in words if is_exchange_cheaper(len(arrays[name]), split[name], tokens, mesh.shape[AXIS])]
        tables = tuple(rows if tokens and not by_layer else ())
        sent = {name: dtype if parameters.only_multiplied(name) else jnp.dtype(jnp.float32) for name in arrays}
        large = [name for name, value in arrays.items() if LAYER in name and value.size >= SMALL]
        late = [*large, *(words if tokens else ())] if by_layer else []
        return Gathering(mesh, split, sent, tables, frozenset(late), padding)

    return make(params, shardings(params, mesh), tokens), make(frozen, frozen_shardings(frozen, mesh, by_layer), tokens)


def frozen_shardings(frozen: Mapping[str, Any], mesh: Mesh, by_layer: bool) -> dict[str, NamedSharding]:
    """Where frozen parameters are: whole on every device, or by layer in parts like the trained ones."""
    return shardings(frozen, mesh) if by_layer else dict.fromkeys(frozen, replicated_sharding(mesh))


def cast_to_product_dtype(frozen: Mapping[str, Any], dtype: jnp.dtype) -> dict[str, Any]:
    """Frozen parameters of a step by layer: those that only products read are cast to the products' type."""
    return {name: value.astype(dtype) if parameters.only_multiplied(name) else value for name, value in frozen.items()}


def product_dtype(graph: Graph, params: Params) -> jnp.dtype:
    """The type of the factors of an encoder's products."""
    return jnp.dtype(parameters.merge(graph, parameters.sentence_encoder(params)).encoder.embeddings.dtype)


def padding_id(graph: Graph, params: Params) -> int:
    """The id of padding, if an encoder's positions depend on which tokens have it; otherwise -1."""
    config = parameters.merge(graph, parameters.sentence_encoder(params)).encoder.config
    return config.pad_token_id if config.positions == AFTER_PADDING else -1
