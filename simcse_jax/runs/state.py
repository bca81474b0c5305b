"""What a run trains: a sentence encoder, and beside it what only its objectives need."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from ml_collections import config_dict

from simcse_jax.devices import processes
from simcse_jax.huggingface.load import Pretrained, choose_pooler
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import HEADS, PREFIX
from simcse_jax.models.language_model import fresh_head
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import build


class TrainState(NamedTuple):
    """All that an update changes. `step` counts the updates done."""

    step: jax.Array
    params: Params
    optimizer: optax.OptState


Shapes = dict[str, jax.ShapeDtypeStruct]


def trained_shapes(encoder: EncoderConfig, run: Mapping[str, Any]) -> Shapes:
    """The abstract float32 parameters of a run's checkpoints, by name.

    Args:
      encoder: its shape.
      run: the run's config, also as `run.json` has it: a field that an older run lacks is off.
    """

    def trains(objective: str) -> bool:
        return run["objective"].get(objective, {}).get("weight", 0.0) > 0

    _, first = build(encoder, with_head=HEADS[run["model"]["mlp"]].trained)
    shapes = dict(first)
    if run["model"].get("dual_encoder", False):
        shapes |= {parameters.SECOND + name: value for name, value in first.items()}
    if trains("mlm"):
        head = jax.eval_shape(lambda: fresh_head(encoder, jax.random.key(0)))
        shapes |= {parameters.LANGUAGE_MODEL + name: value for name, value in head.items()}
    if trains("softmax_nli"):
        shapes[parameters.CLASSIFIER] = jax.ShapeDtypeStruct((3 * encoder.hidden_size, 3), jnp.float32)
    return shapes


# Folded into the seed for fresh weights, so that they share no key with the masks.
HEAD_STREAM, SECOND_HEAD_STREAM, LANGUAGE_MODEL_STREAM, CLASSIFIER_STREAM = range(0x68656164, 0x68656168)


def initial_params(config: config_dict.ConfigDict, model: Pretrained) -> Params:
    """The loaded weights, and all else that is trained: fresh where the model has none of its own.

    A second encoder starts from the same weights, with a fresh head of its own.
    """
    params = {name: jnp.asarray(value) for name, value in model.params.items() if not name.startswith(PREFIX)}
    size = model.config.hidden_size
    has_own = choose_pooler(model, config.model.pooler)[1]

    def fresh(stream: int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(config.seed, impl="threefry2x32"), stream)

    def head(stream: int) -> Params:
        if not HEADS[config.model.mlp].trained:
            return {}
        if has_own:
            return {name: jnp.asarray(value) for name, value in model.params.items() if name.startswith(PREFIX)}
        kernel = 0.02 * jax.random.normal(fresh(stream), (size, size), jnp.float32)
        return {"head.kernel": kernel, "head.bias": jnp.zeros(size, jnp.float32)}

    if HEADS[config.model.mlp].trained and has_own:
        processes.say(f"{model.name}: its own head is trained further")
    first = params | head(HEAD_STREAM)
    everything = dict(first)
    if config.model.dual_encoder:
        second = params | head(SECOND_HEAD_STREAM)
        everything |= {parameters.SECOND + name: jnp.array(value) for name, value in second.items()}
    if config.objective.mlm.weight:
        if model.language_model is None:
            processes.say(f"{model.name}: has no language-model head; objective.mlm starts with a fresh one")
        found = model.language_model or fresh_head(model.config, fresh(LANGUAGE_MODEL_STREAM))
        everything |= {parameters.LANGUAGE_MODEL + name: jnp.asarray(value) for name, value in found.items()}
    if config.objective.softmax_nli.weight:
        everything[parameters.CLASSIFIER] = 0.02 * jax.random.normal(fresh(CLASSIFIER_STREAM), (3 * size, 3))
    return everything
