"""The parts of a layer; its numbers are next to those of transformers in `huggingface/test_against_torch.py`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_batch, random_model

from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import build

pytestmark = pytest.mark.exact


def test_a_bias_of_a_rotated_key_has_a_gradient():
    """It adds other numbers to a query's scores at other distances; without rotation it is zero in exact arithmetic."""
    _, _, config = random_model("modernbert", num_layers=1)
    config = dataclasses.replace(config, attention_bias=True)
    graph, shapes = build(config, with_head=False)
    generator = np.random.default_rng(0)
    params = {name: jnp.asarray(generator.normal(size=x.shape), jnp.float32) for name, x in shapes.items()}
    ids, mask = (array[:, 0] for array in random_batch(2, 8))

    def total(params):
        return jnp.sum(jnp.sin(parameters.merge(graph, params).encoder(ids, mask)[-1]))

    gradient = jax.jit(jax.grad(total))(params)["encoder.layers.0.qkv.bias"]
    assert all(np.abs(part).max() > 1e-3 for part in np.split(np.asarray(gradient), 3))


def test_the_first_layers_of_an_encoder_keep_their_kind_and_the_final_norm():
    fields = {"model_type": "modernbert", "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 5}
    fields |= {"num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0}
    whole = EncoderConfig.from_hugging_face(fields, "test")
    assert whole.local_layers == (1, 2, 4)
    # Equal weights have equal identities, cut here or in the file.
    assert whole.keep_layers(2) == EncoderConfig.from_hugging_face(fields | {"num_hidden_layers": 2}, "test")
    first = build(whole.keep_layers(2), with_head=False)[1]
    assert "encoder.final_norm.scale" in first and "encoder.layers.2.qkv.kernel" not in first
    assert "encoder.layers.0.attention_norm.scale" not in first and "encoder.layers.1.attention_norm.scale" in first
