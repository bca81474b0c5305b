"""Which of a run's parameters train and which are frozen: splits the dictionary by name.

A step takes both (`training.step`): gradients, the optimizer's state and checkpoints hold what trains alone.
"""

from collections.abc import Mapping
from typing import Any

from simcse_jax.models import lora
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.parameters import SECOND, Arrays, Value, subset

# Before the names of the frozen parameters, among those of a step; a generator's have none.
BASE = "base."


def is_frozen(name: str, encoder: EncoderConfig) -> bool:
    """Whether a parameter of a run is frozen. Only parameters of encoders are."""
    path = name.removeprefix(SECOND).split(".")
    partial = encoder.partial
    if partial is None or path[0] != "encoder":
        return False
    if encoder.lora is not None:
        return lora.NAME not in path
    if path[1] == "layers":
        return int(path[2]) in encoder.groups[: partial.frozen_layers]
    if path[1] == "final_norm":  # of the last layer
        return partial.frozen_layers == encoder.num_layers
    return partial.frozen_embeddings  # the tables, their norm and projection, and MPNet's numbers of distances


def split(params: Mapping[str, Value], encoder: EncoderConfig) -> tuple[dict[str, Value], dict[str, Value]]:
    """The parameters that train, and the frozen ones; those of two encoders, which start alike, are kept once."""
    trained = {name: value for name, value in params.items() if not is_frozen(name, encoder)}
    rest = {name: value for name, value in params.items() if name not in trained and not name.startswith(SECOND)}
    return trained, rest


def whole(trained: Mapping[str, Any], frozen: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `split`."""
    both = any(name.startswith(SECOND) for name in trained)
    second = {SECOND + name: value for name, value in frozen.items()} if both else {}
    return {**frozen, **second, **trained}


def in_step(frozen: Mapping[str, Value]) -> dict[str, Value]:
    """Frozen parameters by their names among those of a step."""
    return {BASE + name: value for name, value in frozen.items()}


def of_step(trained: Mapping[str, Any], frozen: Mapping[str, Any] | None) -> dict[str, Any]:
    """All parameters, from a step's two arguments; a generator's are left out."""
    return whole(trained, subset(frozen or {}, BASE))


def merged(params: Arrays, encoder: EncoderConfig) -> dict[str, Any]:
    """All parameters of a run, without LoRA: its products are added to the linear maps."""
    if encoder.lora is None:
        return dict(params)
    result = lora.merge(params, encoder)
    return lora.merge(result, encoder, SECOND) if any(name.startswith(SECOND) for name in result) else result
