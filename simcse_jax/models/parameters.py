"""A model as a pair: a static graph, and a flat dictionary of arrays named like `encoder.layers.0.qkv.kernel`."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from simcse_jax.models import convolutions, modules
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.by_layer import Part
from simcse_jax.models.head import PREFIX
from simcse_jax.models.products import Copied, DType

Params = dict[str, jax.Array]
Arrays = Mapping[str, AnyArray]  # parameters on a device or on the host
Model = TypeVar("Model", bound=nnx.Module)
Value = TypeVar("Value")  # an array, its shape or its sharding

PARTS = ("encoder.", convolutions.PREFIX, PREFIX, modules.PREFIX)  # of a sentence encoder
# Prefixes of what a run may train in addition to the sentence encoder's `PARTS`: a second encoder, a language model's
# head, and a projector. Objectives name their other parameters.
SECOND, LANGUAGE_MODEL, PROJECTOR = "second.", "language_model.", "projector."
COPY = "@copy"  # at the end of a copy's name
WORD_EMBEDDING, PROJECTION = "encoder.embeddings.word.embedding", "encoder.embeddings.projection.kernel"


def subset(params: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """The parameters whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}


def sentence_encoder(params: Mapping[str, Value], tower: int = 0) -> dict[str, Value]:
    """The parameters of the first or the second sentence encoder, without anything else that is trained."""
    if tower:
        return subset(params, SECOND)
    return {name: value for name, value in params.items() if name.startswith(PARTS)}


def token_size(params: Arrays) -> int:
    """The number of features of a token that the first sentence encoder's pooler reads."""
    biases = [
        value.shape[0] for name, value in params.items() if name.startswith(convolutions.PREFIX) and value.ndim == 1
    ]
    return sum(biases) or params.get(PROJECTION, params[WORD_EMBEDDING]).shape[1]


def with_encoder(params: Mapping[str, Value], tower: int) -> dict[str, Value]:
    """All parameters, those of the first or the second sentence encoder in the place of the first one's."""
    if not tower:
        return dict(params)
    rest = {name: value for name, value in params.items() if not name.startswith(("encoder.", PREFIX, SECOND))}
    return rest | subset(params, SECOND)


def split(model: Model) -> tuple[nnx.GraphDef[Model], Params]:
    """The model's graph and its parameters, by dotted name."""
    graph, state = nnx.split(model, nnx.Param)
    return graph, {".".join(map(str, path)): variable[...] for path, variable in nnx.to_flat_state(state)}


def merge(graph: nnx.GraphDef[Model], params: Mapping[str, AnyArray | Part]) -> Model:
    """The inverse of `split`; cheap, meant to be called inside a traced function.

    The products of parameters that have `copies` here read these.
    """
    copies = {name.removesuffix(COPY): value for name, value in params.items() if name.endswith(COPY)}
    flat = {
        tuple(int(part) if part.isdigit() else part for part in name.split(".")): nnx.Param(
            Copied(copies[name], value) if name in copies else value
        )
        for name, value in params.items()
        if not name.endswith(COPY)
    }
    return nnx.merge(graph, nnx.from_flat_state(flat.items()))


def copies(params: Mapping[str, jax.Array | Part], dtype: DType) -> Params:
    """A copy in `dtype` of each parameter that products alone read (see `products.Copied`); none in float32.

    A `Part` has none. Copies have their parameters' names with `COPY` at the end, so that they are chosen by the same
    prefixes.
    """
    arrays = {name: value for name, value in params.items() if not isinstance(value, Part)}
    copied = [name for name in arrays if only_multiplied(name) and dtype != jnp.float32]
    return {name + COPY: jax.lax.stop_gradient(arrays[name].astype(dtype)) for name in copied}


def abstract(build: Callable[[], Model]) -> tuple[nnx.GraphDef[Model], dict[str, jax.ShapeDtypeStruct]]:
    """Like `split(build())`, without allocating anything."""
    graph, state = nnx.split(nnx.eval_shape(build), nnx.Param)
    return graph, {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(state)}


def only_multiplied(name: str) -> bool:
    """Whether a parameter is a factor of an encoder's products, in the type of these, and nothing else."""
    return "encoder." in name and name.endswith(".kernel") and ".lora." not in name
