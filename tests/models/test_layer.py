"""The parts of a layer: ModernBERT and NomicBERT, by NumPy."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_batch, random_model

from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import build

pytestmark = pytest.mark.exact
gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))


def silu(x):
    return x / (1 + np.exp(-x))


def norm(x, of, name, eps):
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt(centred.var(-1, keepdims=True) + eps) * of[f"{name}.scale"]
    return y + of.get(f"{name}.bias", 0.0)


def attention(x, of, config, base, window):
    """Of one sentence without padding: (T, D)."""
    length, size, heads = len(x), config.hidden_size, config.num_heads
    q, k, v = np.split(x @ of["qkv.kernel"], 3, axis=-1)
    q, k, v = (part.reshape(length, heads, size // heads).swapaxes(0, 1) for part in (q, k, v))
    half = size // heads // 2
    turn = np.exp(1j * np.arange(length)[:, None] * float(base) ** (-np.arange(half) / half))
    q, k = ((part[..., :half] + 1j * part[..., half:]) * turn for part in (q, k))
    scores = (q @ k.conj().swapaxes(1, 2)).real / math.sqrt(size // heads)
    distance = np.abs(np.arange(length)[:, None] - np.arange(length))
    scores = np.where(distance <= window, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    context = weights / weights.sum(-1, keepdims=True) @ v
    return context.swapaxes(0, 1).reshape(length, size) @ of["attention_output.kernel"]


def states(ids, params, config):
    """All hidden states of one sentence, as the papers have them."""
    of = {name.removeprefix("encoder."): np.float64(value) for name, value in params.items()}
    eps, is_modern = config.layer_norm_eps, config.model_type == "modernbert"
    x = of["embeddings.word.embedding"][ids]
    x = norm(x if is_modern else x + of["embeddings.type.embedding"][0], of, "embeddings.norm", eps)
    found = [x]
    for index in range(config.num_layers):
        layer = parameters.subset(of, f"layers.{index}.")
        is_global = not is_modern or index % 3 == 0
        base, window = (config.rotary_base, len(ids)) if is_global else (config.local_rotary_base, 2)
        before = norm(x, layer, "attention_norm", eps) if is_modern and index else x
        x = x + attention(before, layer, config, base, window)
        x = x if is_modern else norm(x, layer, "attention_norm", eps)
        before = norm(x, layer, "output_norm", eps) if is_modern else x
        activated, gate = np.split(before @ layer["intermediate.kernel"], 2, axis=-1)
        x = x + ((gelu if is_modern else silu)(activated) * gate) @ layer["output.kernel"]
        x = x if is_modern else norm(x, layer, "output_norm", eps)
        found.append(norm(x, of, "final_norm", eps) if is_modern and index == config.num_layers - 1 else x)
    return found


@pytest.mark.parametrize("model_type", ["modernbert", "nomic_bert"])
def test_hidden_states_by_numpy(model_type):
    """Local layers see two tokens to either side, of 16."""
    graph, params, config = random_model(model_type, with_head=False)
    assert not any(name.endswith("bias") for name in params if "norm" not in name)
    ids, mask = (array[:, 0] for array in random_batch(3, 16))
    found = jax.jit(lambda params: parameters.merge(graph, params).encoder(ids, mask))(params)
    for row, length in enumerate(mask.sum(1)):
        for ours, wanted in zip(found, states(ids[row, :length], params, config), strict=True):
            np.testing.assert_allclose(ours[row, :length], wanted, atol=1e-5)


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
