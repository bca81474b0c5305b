import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_batch, random_model, row_keys

from simcse_jax.models import parameters
from simcse_jax.models.padding import Padded
from simcse_jax.models.pooling import POOLERS, pool

ROWS = 6


@functools.cache
def compiled(model_type):
    graph, params, _ = random_model(model_type)

    @jax.jit
    def run(ids, mask, keys, rate):
        model = parameters.merge(graph, params)
        states = model.encoder(ids, mask, dropout_keys=keys, dropout_rate=rate)
        return {pooler: jnp.tanh(model.head(pool(states, mask, pooler))) for pooler in POOLERS}

    return run


def embed(model_type, length=16, keys=None, rate=0.1, order=slice(None)):
    ids, mask = (array[order, 0] for array in random_batch(ROWS, 16))
    pad = [(0, 0), (0, length - 16)]
    return compiled(model_type)(np.pad(ids, pad), np.pad(mask, pad), None if keys is None else keys[order], rate)


def close(left, right):
    for pooler in POOLERS:
        np.testing.assert_allclose(left[pooler], right[pooler], atol=1e-5, err_msg=pooler)


def apart(left, right):
    return min(np.abs(left[pooler] - right[pooler]).max() for pooler in POOLERS)


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])  # RoBERTa's positions are MPNet's
def test_padding_chunking_and_order_change_nothing_with_dropout_on(model_type):
    keys = row_keys(ROWS)
    whole = embed(model_type, keys=keys)
    for length in (24, 32):
        close(embed(model_type, length=length, keys=keys), whole)
    chunks = [embed(model_type, keys=keys, order=slice(i, i + 2)) for i in range(0, ROWS, 2)]
    close({pooler: np.concatenate([chunk[pooler] for chunk in chunks]) for pooler in POOLERS}, whole)
    order = np.array([3, 0, 5, 1, 4, 2])
    close(embed(model_type, keys=keys, order=order), {pooler: whole[pooler][order] for pooler in POOLERS})


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
@pytest.mark.parametrize("pooler", ["cls", "avg_first_last"])
def test_leaving_padding_out_changes_neither_embeddings_nor_gradients(model_type, pooler):
    """With the same masks of dropout, whether the places are just enough or there are some over."""
    graph, params, _ = random_model(model_type)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))
    target = np.random.default_rng(0).normal(size=(ROWS, 32))

    @functools.partial(jax.jit, static_argnums=1)
    def loss_and_gradient(params, most_tokens):
        def loss(params):
            embeddings = parameters.merge(graph, params)(
                ids, mask, pooler=pooler, use_head=True, dropout_keys=row_keys(ROWS), most_tokens=most_tokens
            )
            return jnp.sum(target * embeddings), embeddings

        (_, embeddings), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        return embeddings, gradient

    expected, expected_gradient = loss_and_gradient(params, None)
    assert mask.sum() + 5 < mask.size
    for most_tokens in (int(mask.sum()), int(mask.sum()) + 5):
        embeddings, gradient = loss_and_gradient(params, most_tokens)
        np.testing.assert_allclose(embeddings, expected, atol=2e-6)
        for name, value in gradient.items():
            np.testing.assert_allclose(value, expected_gradient[name], rtol=1e-5, atol=1e-5, err_msg=name)
    # Not enough places: rather no number than a wrong one.
    for most_tokens in (int(mask.sum()) - 1, int(mask[:-2].sum()) - 1):
        assert np.isnan(loss_and_gradient(params, most_tokens)[0]).all()


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
@pytest.mark.parametrize(("most_tokens", "num_layers"), [(None, 2), (70, 2), (70, 1)])
def test_the_first_token_alone_is_what_it_is_beside_the_others(model_type, most_tokens, num_layers):
    graph, params, _ = random_model(model_type, num_layers=num_layers)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))
    encoder, keys = parameters.merge(graph, params).encoder, row_keys(ROWS)
    assert mask.sum() <= 70
    *others, last = encoder(ids, mask, dropout_keys=keys, most_tokens=most_tokens, first_only=True)
    *expected, whole = encoder(ids, mask, dropout_keys=keys)
    np.testing.assert_allclose(last, whole[:, :1], atol=2e-6)
    for ours, theirs in zip(others, expected, strict=True):
        np.testing.assert_allclose(ours * mask[..., None], theirs * mask[..., None], atol=2e-6)


def test_dropout_is_on_where_keys_are_given_and_is_theirs_alone():
    keys = row_keys(ROWS)
    masked = embed("bert", keys=keys)
    assert apart(masked, embed("bert")) > 0.05
    assert apart(masked, embed("bert", keys=row_keys(ROWS, seed=1))) > 0.05
    close(embed("bert", keys=keys, rate=0.0), embed("bert"))


def test_every_dropout_site_has_a_number_of_its_own(monkeypatch):
    from simcse_jax.models import encoder

    sites = []

    def record_tokens(keys, positions, site, x, rate):
        return record(keys, site, x, rate)

    def record(keys, site, x, rate):
        sites.append(site)
        return x

    monkeypatch.setattr(encoder, "token_dropout", record_tokens)
    monkeypatch.setattr(encoder, "attention_dropout", record)
    graph, params, config = random_model()
    ids, mask = (array[:, 0] for array in random_batch(2, 8))
    parameters.merge(graph, params).encoder(ids, mask, dropout_keys=row_keys(2))
    assert len(sites) == len(set(sites)) == 1 + 3 * config.num_layers


def test_all_hidden_states_are_given():
    graph, params, config = random_model()
    ids, mask = (array[:, 0] for array in random_batch(2, 8))
    hidden_states = parameters.merge(graph, params).encoder(ids, mask)
    assert [state.shape for state in hidden_states] == [(2, 8, 32)] * (config.num_layers + 1)


def test_poolers_by_hand():
    # Two tokens and one of padding; the embedding layer, then two layers.
    layers = jnp.array([[[9.0], [9.0], [9.0]], [[1.0], [3.0], [50.0]], [[5.0], [11.0], [70.0]]])[:, None]
    mask = jnp.array([[1, 1, 0]])
    expected = {"cls": 5.0, "cls_before_pooler": 5.0, "avg": 8.0, "avg_top2": 5.0, "avg_first_last": 5.0}
    expected |= {"max": 11.0}
    assert {pooler: float(pool(layers, mask, pooler)[0, 0]) for pooler in POOLERS} == expected
    three = jnp.concatenate([layers, jnp.array([[[0.0], [2.0], [0.0]]])[None]])
    assert float(pool(three, mask, "avg_first_last")[0, 0]) == (2 + 1) / 2
    assert float(pool(three, mask, "avg_top2")[0, 0]) == (8 + 1) / 2
    with pytest.raises(ValueError, match="min"):
        pool(layers, mask, "min")


def test_max_takes_each_dimension_s_own_token():
    last = jnp.array([[[1.0, -5.0], [-2.0, -3.0], [9.0, 9.0]], [[4.0, 0.0], [0.0, 7.0], [5.0, -1.0]]])
    mask = jnp.array([[1, 1, 0], [1, 1, 1]])

    def pooled(last):
        return pool([0 * last, 0 * last, last.astype(jnp.bfloat16)], mask, "max")

    assert pooled(last).tolist() == [[1.0, -3.0], [5.0, 7.0]] and pooled(last).dtype == jnp.float32
    gradient = jax.grad(lambda last: jnp.sum(pooled(last) * jnp.array([[1.0, 2.0], [3.0, 4.0]])))(last)
    assert gradient.tolist() == [[[1, 0], [0, 2], [0, 0]], [[0, 0], [0, 4], [3, 0]]]


BARE = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Block())
import jax
import simcse_jax.huggingface.load
from flax import nnx
from simcse_jax import step
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import SentenceEncoder
from simcse_jax.objectives.total import Objective
from simcse_jax.views import plan

config = EncoderConfig("bert", 9, 8, 1, 2, 8, 8, 2, 1e-12, "gelu", 0)
graph, params = parameters.split(SentenceEncoder(config, with_head=True, rngs=nnx.Rngs(0)))
ones = jax.numpy.ones((2, 1, 4), int)
batch = {"input_ids": ones, "attention_mask": ones, "index": jax.numpy.arange(2)}
terms = {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}
info_nce = Objective("info_nce", (("similarity", "cosine"), ("symmetric", False)))
recipe = step.Recipe("cls", True, *plan(1, "independent"), (info_nce,))
loss = step.make_loss(graph, recipe, step.data_mesh(jax.devices()[:1]))
settings = {"seed": 0, "dropout": 0.1, "noise": 0.0, "objective": {"info_nce": terms}}
print(jax.jit(loss)(params, 0, batch, settings)[0])
"""


def test_models_views_objectives_and_step_run_with_jax_flax_optax_and_numpy_alone():
    blocked = {"transformers", "tokenizers", "safetensors", "datasets", "tensorflow_datasets", "ml_collections", "tqdm"}
    blocked |= {"huggingface_hub", "pyarrow", "tensorboardX", "torch", "tensorflow"}
    code = BARE.replace("BLOCKED", repr(blocked))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_the_key_s_bias_has_a_gradient_of_exactly_zero_and_the_others_do_not(model_type):
    """In exact arithmetic it is zero; as noise, Adam would make steps of it that differ on every machine."""
    graph, params, _ = random_model(model_type)
    ids, mask = random_batch(4, 8)

    def total(params):
        model = parameters.merge(graph, params)
        return jnp.sum(jnp.sin(model(ids[:, 0], mask[:, 0], pooler="avg", use_head=False)))

    query, key, value = jax.jit(jax.grad(total))(params)["encoder.layers.0.qkv.bias"].reshape(3, -1)
    assert not key.any() and query.all() and value.all()
    # It still counts: the forward pass is the checkpoint's own.
    moved = params | {"encoder.layers.0.qkv.bias": params["encoder.layers.0.qkv.bias"] + 0.5}
    assert float(total(moved)) != float(total(params))


def test_a_relative_bias_moves_attention_to_the_keys_of_its_buckets():
    """One head is told to look at the next token alone: its context is that token's value."""
    graph, params, config = random_model("mpnet", num_layers=1)
    ids, mask = (array[:, 0] for array in random_batch(2, 8))
    size = config.hidden_size // config.num_heads
    table = np.zeros((32, config.num_heads), np.float32)
    table[17, 1] = 1e4  # 17: one position behind the query
    only_context = {  # what comes out of attention goes on as it is, in place of x
        "encoder.layers.0.attention_output.kernel": np.eye(32, dtype=np.float32),
        "encoder.layers.0.attention_output.bias": np.zeros(32, np.float32),
    }
    model = parameters.merge(graph, params | only_context | {"encoder.relative_bias": jnp.array(table)})
    x = model.encoder.embeddings(ids, mask, Padded(8), None, 0.0)
    layer = model.encoder.layers[0]
    layer.attention_norm = lambda context: context - x
    layer.intermediate.kernel[...] = 0 * layer.intermediate.kernel[...]  # of the feed-forward part a constant is left
    layer.output.bias[...] = 0 * layer.output.bias[...]
    layer.output_norm = lambda value: value
    layer.intermediate.bias[...] = 0 * layer.intermediate.bias[...]
    context = np.asarray(model.encoder(ids, mask)[-1])
    value = np.asarray(x @ layer.qkv.kernel[...] + layer.qkv.bias[...])[:, :, 2 * 32 :]
    length = int(mask[0].sum())
    head = slice(size, 2 * size)
    np.testing.assert_allclose(context[0, : length - 1, head], value[0, 1:length, head], atol=1e-5)
    assert np.abs(context[0, : length - 1, :size] - value[0, 1:length, :size]).max() > 1e-2  # the other heads do not
