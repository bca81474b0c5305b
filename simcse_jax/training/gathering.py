"""The parameters of a step, whole on each device: gathered from the parts that the devices keep (`devices.parts`)."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.mesh import AXIS, Way, ways
from simcse_jax.devices.parts import gather, rows_of, sends_rows, spec
from simcse_jax.models import parameters, partial
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives.rows import Batch


class Gathering(NamedTuple):
    """How each parameter comes from the parts, by name."""

    split: dict[str, P]  # how the devices keep it
    sent: dict[str, jnp.dtype]  # the type in which it is gathered
    way: dict[str, Way]
    tables: tuple[str, ...]  # of which each device gets the rows of its tokens alone

    def __call__(self, parts: Mapping[str, jax.Array], batch: Batch) -> tuple[Params, Batch]:
        """Within `shard_map`: the parameters and the batch, of this device.

        Of `tables` it has the rows of the batch's tokens, in their order, and then the ids of the batch are 0, 1, 2, ….

        All are cast to device-varying, once, here. Otherwise JAX casts at every use, and sums the gradient over the
        devices each time (with chunks, in every iteration of the scan).
        """
        ids = jnp.asarray(batch["input_ids"])
        whole = {
            name: rows_of(part, self.split[name], ids.reshape(-1))
            if name in self.tables
            else gather(part, self.split[name], self.sent[name], self.way[name])
            for name, part in parts.items()
        }
        if not self.tables:
            return whole, batch
        places = jnp.arange(ids.size, dtype=ids.dtype).reshape(ids.shape)
        return whole, {**batch, "input_ids": jax.lax.pcast(places, AXIS, to="varying")}


def make_gathering(graph: Graph, params: Params, frozen: Params | None, mesh: Mesh, tokens: int) -> Gathering:
    """Chooses for each parameter of a step.

    Args:
      graph: of the encoder.
      params, frozen: those that train and those that do not, or their shapes.
      mesh: the devices.
      tokens: the number of places for tokens in each device's part of the batch, if the networks read no other rows of
        the word embeddings than those of the batch's tokens; otherwise 0.
    """
    split = {name: spec(value.shape, mesh.size) for name, value in params.items()}
    words = [prefix + parameters.WORD_EMBEDDING for prefix in ("", parameters.SECOND) if tokens]
    tables = tuple(
        name for name in words if name in params and sends_rows(len(params[name]), split[name], tokens, mesh.size)
    )
    way = ways({name: value.size for name, value in params.items() if name not in tables}, mesh)
    # What products alone read is sent in their type: they round it anyway, so this changes no bit of the loss.
    dtype = type_of_products(graph, partial.of_step(params, frozen))
    sent = {name: dtype if parameters.only_multiplied(name) else jnp.dtype(jnp.float32) for name in params}
    return Gathering(split, sent, way, tables)


def type_of_products(graph: Graph, params: Params) -> jnp.dtype:
    """The type of the factors of an encoder's products."""
    return jnp.dtype(parameters.merge(graph, parameters.sentence_encoder(params)).encoder.embeddings.dtype)
