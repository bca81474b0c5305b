"""A model as a pair: a static graph, and a flat dictionary of arrays named like `encoder.layers.0.qkv.kernel`."""

from collections.abc import Callable

import jax
from flax import nnx

Params = dict[str, jax.Array]


def split(model: nnx.Module) -> tuple[nnx.GraphDef, Params]:
    """The model's graph and its parameters, by dotted name."""
    graph, state = nnx.split(model, nnx.Param)
    return graph, {".".join(map(str, path)): variable[...] for path, variable in nnx.to_flat_state(state)}


def merge(graph: nnx.GraphDef, params: Params) -> nnx.Module:
    """The inverse of `split`; cheap, meant to be called inside a traced function."""
    flat = {
        tuple(int(part) if part.isdigit() else part for part in name.split(".")): nnx.Param(value)
        for name, value in params.items()
    }
    return nnx.merge(graph, nnx.from_flat_state(flat.items()))


def abstract(build: Callable[[], nnx.Module]) -> tuple[nnx.GraphDef, dict[str, jax.ShapeDtypeStruct]]:
    """Like `split(build())`, without allocating anything."""
    graph, state = nnx.split(nnx.eval_shape(build), nnx.Param)
    return graph, {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(state)}
