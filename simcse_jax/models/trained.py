"""What a run trains: a sentence encoder, and beside it what only its objectives need."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from simcse_jax.models import huggingface, parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.language_model import fresh_head

Shapes = dict[str, jax.ShapeDtypeStruct]


def trained_shapes(encoder: EncoderConfig, run: Mapping[str, Any]) -> Shapes:
    """The abstract float32 parameters of a run's checkpoints, by name.

    Args:
      encoder: its shape.
      run: the run's config, also as `run.json` has it: a field that an older run lacks is off.
    """

    def trains(objective: str) -> bool:
        return run["objective"].get(objective, {}).get("weight", 0.0) > 0

    _, first = huggingface.build(encoder, with_head=run["model"]["mlp"] != "none")
    shapes = dict(first)
    if run["model"].get("dual_encoder", False):
        shapes |= {parameters.SECOND + name: value for name, value in first.items()}
    if trains("mlm"):
        head = jax.eval_shape(lambda: fresh_head(encoder, jax.random.key(0)))
        shapes |= {parameters.LANGUAGE_MODEL + name: value for name, value in head.items()}
    if trains("softmax_nli"):
        shapes[parameters.CLASSIFIER] = jax.ShapeDtypeStruct((3 * encoder.hidden_size, 3), jnp.float32)
    return shapes
