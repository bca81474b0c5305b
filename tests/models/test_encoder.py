import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support import random_batch, random_model, row_keys

from simcse_jax.choices import POOLERS
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.padding import Padded, unpadded
from simcse_jax.models.pooling import pool
from simcse_jax.models.sentence_encoder import SentenceEncoder, build

pytestmark = pytest.mark.exact
ROWS = 6
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("mpnet", "albert", "qwen3")]
BERT = pytest.param("bert", marks=[pytest.mark.slow, pytest.mark.optimized])


@pytest.mark.parametrize("model_type", ["modernbert", BERT, *SLOW])  # RoBERTa numbers positions as MPNet does
def test_padding_chunking_and_order_change_nothing_with_dropout_on(model_type):
    graph, params, _ = random_model(model_type)

    @jax.jit
    def run(ids, mask, keys):
        model = parameters.merge(graph, params)
        states = model.encoder(ids, mask, dropout_keys=keys, dropout_rate=0.1)
        return {pooler: jnp.tanh(model.head(pool(states, mask, pooler, is_mask_token=mask > 0))) for pooler in POOLERS}

    def embed(order, length=16):
        ids, mask = (np.pad(array[order, 0], [(0, 0), (0, length - 16)]) for array in random_batch(ROWS, 16))
        return run(ids, mask, row_keys(ROWS)[order])

    order, whole = np.array([3, 0, 5, 1, 4, 2]), embed(np.arange(ROWS))
    ordered, chunks = embed(order, length=24), [embed(np.arange(i, i + 2)) for i in range(0, ROWS, 2)]
    for name, expected in whole.items():
        np.testing.assert_allclose(ordered[name], expected[order], atol=1e-5, err_msg=name)
        np.testing.assert_allclose(np.concatenate([chunk[name] for chunk in chunks]), expected, atol=1e-5, err_msg=name)


SLOW = (("cls", "albert", 2), ("cls", "modernbert", 2), ("avg_first_last", "nomic_bert", 2))
SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in SLOW]


@pytest.mark.parametrize(("pooler", "model_type", "num_layers"), [("avg_static_last", "mpnet", 1), *SLOW])
def test_leaving_padding_out_changes_neither_embeddings_nor_gradients(model_type, pooler, num_layers):
    """With the same dropout masks, whether there are just enough places or a few more."""
    graph, params, _ = random_model(model_type, num_layers=num_layers)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))
    target, tokens = np.random.default_rng(0).normal(size=(ROWS, 32)), int(mask.sum())

    def loss(params, most_tokens):
        embeddings = parameters.merge(graph, params)(
            ids, mask, pooler=pooler, use_head=True, dropout_keys=row_keys(ROWS), most_tokens=most_tokens
        )
        return jnp.sum(target * embeddings), embeddings

    gradient_of, only = (jax.jit(f, static_argnums=1) for f in (jax.grad(loss, has_aux=True), loss))
    (expected_gradient, expected), (gradient, embeddings) = (gradient_of(params, most) for most in (None, tokens + 5))
    assert tokens + 5 < mask.size
    np.testing.assert_allclose(embeddings, expected, atol=2e-6)
    for name, value in gradient.items():
        np.testing.assert_allclose(value, expected_gradient[name], rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(only(params, tokens)[1], expected, atol=2e-6)
    assert np.isnan(only(params, tokens - 1)[1]).all()  # not enough places: no number is better than a wrong one


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("bert", "mpnet", "albert")]


@pytest.mark.parametrize("model_type", ["modernbert", *SLOW])
def test_the_first_token_alone_is_the_same_as_with_all_others(model_type):
    graph, params, _ = random_model(model_type)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))
    assert mask.sum() <= 70

    @jax.jit
    def run(params, keys):
        encoder = parameters.merge(graph, params).encoder
        alone = [encoder(ids, mask, dropout_keys=keys, most_tokens=most, first_only=True) for most in (None, 70)]
        return encoder(ids, mask, dropout_keys=keys), alone

    (*expected, whole), alone = run(params, row_keys(ROWS))
    for *others, last in alone:
        np.testing.assert_allclose(last, whole[:, :1], atol=2e-6)
        for ours, theirs in zip(others, expected, strict=True):
            np.testing.assert_allclose(ours * mask[..., None], theirs * mask[..., None], atol=2e-6)


def test_dropout_is_on_with_keys_depends_on_them_alone_and_attention_has_a_rate_of_its_own():
    graph, params, _ = random_model(num_layers=1)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))

    @jax.jit
    def last(keys, rate=0.0, attention_rate=None):
        encoder, rates = parameters.merge(graph, params).encoder, {"attention_dropout_rate": attention_rate}
        return encoder(ids, mask, dropout_keys=keys, dropout_rate=rate, **rates)[-1] * mask[..., None]

    def apart(left, right):
        return np.abs(left - right).max()

    keys, off = row_keys(ROWS), last(None)
    on = last(keys, 0.1)
    assert apart(on, off) > 0.05 and apart(on, last(row_keys(ROWS, seed=1), 0.1)) > 0.05
    np.testing.assert_array_equal(on, last(keys, 0.1, 0.1))
    for rates in ((0.0,), (0.0, 0.0)):
        np.testing.assert_allclose(last(keys, *rates), off, atol=1e-6)
    assert apart(last(keys, 0.0, 0.3), off) > 0.01 and apart(last(keys, 0.1, 0.0), on) > 0.01


def test_the_key_s_bias_has_a_gradient_of_exactly_zero_and_the_others_do_not():
    """It is zero in exact arithmetic; from rounding noise, Adam would make steps that differ on every machine."""
    graph, params, _ = random_model(num_layers=1)
    ids, mask = random_batch(4, 8)

    def total(params):
        return jnp.sum(jnp.sin(parameters.merge(graph, params)(ids[:, 0], mask[:, 0], pooler="avg", use_head=False)))

    run = jax.jit(jax.value_and_grad(total))
    before, gradient = run(params)
    query, key, value = gradient["encoder.layers.0.qkv.bias"].reshape(3, -1)
    assert not key.any() and query.all() and value.all()
    # It still counts: the forward pass is the checkpoint's own.
    moved = params | {"encoder.layers.0.qkv.bias": params["encoder.layers.0.qkv.bias"] + 0.5}
    assert float(run(moved)[0]) != float(before)


@pytest.mark.parametrize("most_tokens", [None, pytest.param(ROWS * 14, marks=pytest.mark.slow)])
def test_other_first_tokens_take_the_places_of_those_in_the_first_layer_s_input(most_tokens):
    """After norm and dropout: the masks of the other tokens are the same, and the id that stood there is forgotten."""
    graph, params, _ = random_model(num_layers=1)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))
    first = np.random.default_rng(0).normal(size=(ROWS, 32)).astype(np.float32)

    @jax.jit
    def encode(ids, first):
        encoder = parameters.merge(graph, params).encoder
        return encoder(ids, mask, dropout_keys=row_keys(ROWS), most_tokens=most_tokens, first=first)

    plain, found = encode(ids, None), encode(ids, first)
    np.testing.assert_array_equal(found[0][:, 0], first)
    np.testing.assert_array_equal(found[0][:, 1:], plain[0][:, 1:])
    assert np.abs(found[-1][:, 1] - plain[-1][:, 1]).max() > 0.01
    other = ids.copy()
    other[:, 0] = (ids[:, 0] + 5) % 40
    np.testing.assert_array_equal(encode(other, first)[-1], found[-1])
    np.testing.assert_allclose(encode(ids, plain[0][:, 0])[-1], plain[-1], atol=1e-6)


@pytest.mark.parametrize("kind", ["mistral", "qwen3"])
def test_a_decoder_s_token_knows_those_before_it_alone_also_in_blocks(kind, monkeypatch):
    graph, params, _ = random_model(kind, num_layers=1)
    ids, mask = random_batch(2, 16)[0][:, 0], np.ones((2, 16), np.int32)
    other = ids.copy()
    other[:, 9:] = 4 + (ids[:, 9:] + 7) % 36
    states = []
    for length in (512, 8):  # above which a text is long
        monkeypatch.setattr("simcse_jax.models.attention.LONG", length)
        monkeypatch.setattr("simcse_jax.models.attention.BLOCK", 4)
        run = jax.jit(lambda ids: parameters.merge(graph, params).encoder(ids, mask)[-1])
        states.append(run(ids))
        np.testing.assert_allclose(states[-1][:, :9], run(other)[:, :9], atol=1e-6)
        assert np.abs(states[-1][:, 9:] - run(other)[:, 9:]).max(axis=-1).min() > 1e-3
    np.testing.assert_allclose(*states, atol=1e-5)


@pytest.mark.parametrize("model_type", ["electra", pytest.param("albert", marks=pytest.mark.slow)])
def test_masks_are_bit_equal_whatever_the_padding_and_without_it(model_type):
    graph, params, config = random_model(model_type)
    encoder, lengths = parameters.merge(graph, params).encoder, np.array([[8], [3], [1]])
    there, longer = (np.arange(length) < lengths for length in (8, 12))
    layouts = (Padded(12), unpadded(longer.astype(np.int32), 14))
    drawn = jax.jit(
        lambda keys: [
            encoder.draw_masks(x, n, keys, 0.3) for x, n in ((Padded(8), 8), (layouts[0], 12), (layouts[1], 12))
        ]
    )
    (embedding, layers), *others = drawn(row_keys(3))
    assert embedding.keep.shape == (3, 8, config.table_size) and len(layers) == config.num_layers
    kept = []
    for layout, (other_embedding, other_layers) in zip(layouts, others, strict=True):
        pairs = [(embedding, other_embedding)]
        for mine, other in zip(layers, other_layers, strict=True):
            np.testing.assert_array_equal(mine.attention.keep, other.attention.keep[:, :, :8, :8])
            pairs += [(mine[site], other[site]) for site in (1, 2) if mine[site] is not None or other[site] is not None]
        for mine, other in pairs:
            np.testing.assert_array_equal(mine.keep[there], layout.to_rows(other.keep)[:, :8][there])
        kept = [np.asarray(mine.keep) for mine, _ in pairs] + [np.asarray(layer.attention.keep) for layer in layers]
    dropped = config.drops_attention_output + config.drops_feed_forward_output
    assert len({keep.tobytes() for keep in kept}) == len(kept) == 1 + config.num_layers * (1 + dropped)


def test_a_projection_and_shared_layers_in_bfloat16_are_close_to_float32_and_between_layers_all_is_bfloat16():
    ids, mask = (array[:, 0] for array in random_batch(3, 8))
    graph, params, config = random_model("albert")
    in_bfloat16, _ = build(config, with_head=True, dtype=jnp.bfloat16)

    @jax.jit
    def run(params):
        return [parameters.merge(each, params).encoder(ids, mask) for each in (in_bfloat16, graph)]

    rounded, exact = run(params)
    for mine, other in zip(rounded, exact, strict=True):
        assert mine.dtype == jnp.bfloat16
        assert 1e-4 < np.abs(np.asarray(mine, np.float32) - other).max() < 0.15


def test_an_encoder_without_layers_gives_the_words_vectors():
    ids, mask = np.int32([[1, 2, 0], [3, 0, 0], [0, 0, 0]]), np.int32([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    config = EncoderConfig.of_words(5, 4)
    assert (config.num_layers, config.max_length) == (0, 4096)
    graph, params = parameters.split(SentenceEncoder(config, with_head=False, rngs=nnx.Rngs(0)))
    assert list(params) == [parameters.WORD_EMBEDDING]
    table = jax.random.normal(jax.random.key(0), (5, 4))
    model = parameters.merge(graph, {parameters.WORD_EMBEDDING: table})
    options = ({"most_tokens": most, "pooler": "avg", "use_head": False} for most in (None, 4))
    (states,), *pooled = jax.jit(lambda: [model.encoder(ids, mask), *(model(ids, mask, **each) for each in options)])()
    np.testing.assert_array_equal(states, table[ids])
    table = np.asarray(table)
    for found in pooled:
        np.testing.assert_allclose(found, [(table[1] + table[2]) / 2, table[3], np.zeros(4)], atol=1e-6)
