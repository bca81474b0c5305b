"""What a run trains: a sentence encoder, and beside it what only its objectives need."""

import jax
import jax.numpy as jnp

from simcse_jax.models import huggingface, parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.language_model import fresh_head

Shapes = dict[str, jax.ShapeDtypeStruct]


def trained_shapes(
    config: EncoderConfig, *, with_head: bool, two_towers: bool, language_model: bool, classifier: bool
) -> Shapes:
    """The abstract float32 parameters of a run's checkpoints, by name.

    Args:
      config: the encoder's.
      with_head: whether the sentence encoder has one in training.
      two_towers: whether there is a second encoder (`model.dual_encoder`).
      language_model: whether there is a masked-language-model head (`objective.mlm`).
      classifier: whether there is a classifier of labelled pairs (`objective.softmax_nli`).
    """
    _, first = huggingface.build(config, with_head)
    shapes = dict(first)
    if two_towers:
        shapes |= {parameters.SECOND + name: value for name, value in first.items()}
    if language_model:
        head = jax.eval_shape(lambda: fresh_head(config, jax.random.key(0)))
        shapes |= {parameters.LANGUAGE_MODEL + name: value for name, value in head.items()}
    if classifier:
        shapes[parameters.CLASSIFIER] = jax.ShapeDtypeStruct((3 * config.hidden_size, 3), jnp.float32)
    return shapes
