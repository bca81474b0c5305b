"""Passes over tokens, of objectives that have any: the networks that they read, and those after the projector."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from simcse_jax.models import by_layer, parameters
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives.chunks import in_chunks
from simcse_jax.objectives.objective import SecondPassObjective
from simcse_jax.objectives.rows import Batch
from simcse_jax.objectives.tokens import ENCODER, GENERATOR, Network, Tokens

Networks = tuple[tuple[str, Graph], ...]  # by name


def make_networks(
    graphs: Networks, params: Params, frozen: Params, read: Callable[[Graph, Params], Params]
) -> dict[str, Network]:
    """The networks by name, with their parameters as `read` has them; those of all but the encoder have a prefix."""
    networks = {}
    for name, graph in graphs:
        own = params if name == ENCODER else parameters.subset(params, f"{name}.")
        own = read(graph, frozen) if name == GENERATOR else own
        encoder = parameters.merge(graph, parameters.sentence_encoder(own)).encoder
        networks[name] = Network(encoder, by_layer.whole(own))
    return networks


def second_pass(
    objective: SecondPassObjective,
    tokens_of: Callable[[Batch], Tokens],
    chunk_size: int,
    batch: Batch,
    embeddings: dict[str, Float[Array, "..."]],
) -> Any:
    """What an objective's pass over tokens after the projector finds, in chunks.

    Args:
      objective: its own.
      tokens_of: what it is handed for the rows of a batch.
      chunk_size: examples at a time; 0: all.
      batch: all rows.
      embeddings: those of the objective's views, by its names.
    """

    def draw(batch: Batch) -> Any:  # apart, so that the backward pass does not do it again
        return objective.drawn(tokens_of(batch))

    def find(batch: Batch, drawn: Any, embeddings: dict[str, Float[Array, "B D"]]) -> Any:
        return objective.second_pass(tokens_of(batch), drawn, embeddings)

    drawn = in_chunks(draw, chunk_size, batch)
    lone = {name: rows for name, rows in embeddings.items() if rows.ndim == 2}
    return in_chunks(find, chunk_size, batch, drawn, lone)
