import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from support import CONFIGS, ENCODERS, random_batch, random_model, row_keys

from simcse_jax.models import parameters
from simcse_jax.models.config import POOLERS, EncoderConfig
from simcse_jax.models.norm import Norm
from simcse_jax.models.padding import Padded, unpadded
from simcse_jax.models.pooling import pool
from simcse_jax.models.sentence_encoder import SentenceEncoder, build

pytestmark = pytest.mark.exact
ROWS = 6
BERT = pytest.param("bert", marks=pytest.mark.optimized)
ALBERT = pytest.param("albert", marks=pytest.mark.slow)
MPNET = pytest.param("mpnet", marks=pytest.mark.slow)
QWEN3 = pytest.param("qwen3", marks=pytest.mark.slow)


@functools.cache
def compiled(model_type):
    graph, params, _ = random_model(model_type)

    @jax.jit
    def run(ids, mask, keys, rate):
        model = parameters.merge(graph, params)
        states = model.encoder(ids, mask, dropout_keys=keys, dropout_rate=rate)
        return {pooler: jnp.tanh(model.head(pool(states, mask, pooler, is_mask_token=mask > 0))) for pooler in POOLERS}

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


@pytest.mark.parametrize(
    "model_type", ["bert", MPNET, ALBERT, "modernbert", QWEN3]
)  # RoBERTa numbers positions as MPNet does
def test_padding_chunking_and_order_change_nothing_with_dropout_on(model_type):
    keys = row_keys(ROWS)
    whole = embed(model_type, keys=keys)
    for length in (24, 32):
        close(embed(model_type, length=length, keys=keys), whole)
    chunks = [embed(model_type, keys=keys, order=slice(i, i + 2)) for i in range(0, ROWS, 2)]
    close({pooler: np.concatenate([chunk[pooler] for chunk in chunks]) for pooler in POOLERS}, whole)
    order = np.array([3, 0, 5, 1, 4, 2])
    close(embed(model_type, keys=keys, order=order), {pooler: whole[pooler][order] for pooler in POOLERS})


@pytest.mark.parametrize(
    ("pooler", "model_type"),
    [
        ("avg_first_last", "mpnet"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                *(("cls", "bert"), ("cls", "mpnet"), ("avg_first_last", "bert")),
                *(("cls", "albert"), ("cls", "modernbert"), ("avg_first_last", "nomic_bert")),
                *(("avg", "electra"), ("cls", "ernie"), ("avg", "distilbert")),
            )
        ),
    ],
)
def test_leaving_padding_out_changes_neither_embeddings_nor_gradients(model_type, pooler):
    """With the same dropout masks, whether there are just enough places or a few more."""
    graph, params, _ = random_model(model_type)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))
    target = np.random.default_rng(0).normal(size=(ROWS, 32))

    def loss(params, most_tokens):
        embeddings = parameters.merge(graph, params)(
            ids, mask, pooler=pooler, use_head=True, dropout_keys=row_keys(ROWS), most_tokens=most_tokens
        )
        return jnp.sum(target * embeddings), embeddings

    gradient_of = jax.jit(jax.grad(loss, has_aux=True), static_argnums=1)
    expected_gradient, expected = gradient_of(params, None)
    assert mask.sum() + 5 < mask.size
    for most_tokens in (int(mask.sum()), int(mask.sum()) + 5):
        gradient, embeddings = gradient_of(params, most_tokens)
        np.testing.assert_allclose(embeddings, expected, atol=2e-6)
        for name, value in gradient.items():
            np.testing.assert_allclose(value, expected_gradient[name], rtol=1e-5, atol=1e-5, err_msg=name)
    # Not enough places: no number is better than a wrong one.
    for most_tokens in (int(mask.sum()) - 1, int(mask[:-2].sum()) - 1):
        assert np.isnan(jax.jit(loss, static_argnums=1)(params, most_tokens)[1]).all()


@pytest.mark.parametrize(
    ("num_layers", "model_type"),
    [
        *((1, "bert"), (2, "modernbert")),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((2, "bert"), (1, "mpnet"), (2, "mpnet"), (2, "albert"))
        ),
    ],
)
def test_the_first_token_alone_is_the_same_as_with_all_others(model_type, num_layers):
    """With padding, and without it: in 70 places."""
    graph, params, _ = random_model(model_type, num_layers=num_layers)
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


def test_dropout_is_on_with_keys_and_depends_on_them_alone():
    keys = row_keys(ROWS)
    masked = embed("bert", keys=keys)
    assert apart(masked, embed("bert")) > 0.05
    assert apart(masked, embed("bert", keys=row_keys(ROWS, seed=1))) > 0.05
    close(embed("bert", keys=keys, rate=0.0), embed("bert"))


def test_attention_has_a_dropout_rate_of_its_own():
    graph, params, _ = random_model(num_layers=1)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))

    @jax.jit
    def last(rate, attention_rate=None):
        encoder = parameters.merge(graph, params).encoder
        keys = row_keys(ROWS)
        return encoder(ids, mask, dropout_keys=keys, dropout_rate=rate, attention_dropout_rate=attention_rate)[-1]

    np.testing.assert_array_equal(last(0.1), last(0.1, 0.1))
    off = parameters.merge(graph, params).encoder(ids, mask)[-1]
    np.testing.assert_allclose(last(0.0, 0.0)[mask > 0], off[mask > 0], atol=1e-6)
    assert np.abs(last(0.0, 0.3) - off)[mask > 0].max() > 0.01
    assert np.abs(last(0.1, 0.0) - last(0.1))[mask > 0].max() > 0.01


def test_every_dropout_site_has_its_own_number(monkeypatch):
    from simcse_jax.models import encoder

    sites = []

    for name in ("token_masks", "attention_masks"):
        drawn = getattr(encoder, name)

        def record(*args, drawn=drawn):
            sites.extend(next(arg for arg in args if isinstance(arg, list)))
            return drawn(*args)

        monkeypatch.setattr(encoder, name, record)
    graph, params, config = random_model()
    ids, mask = (array[:, 0] for array in random_batch(2, 8))
    jax.eval_shape(lambda keys: parameters.merge(graph, params).encoder(ids, mask, dropout_keys=keys), row_keys(2))
    assert len(sites) == len(set(sites)) == 1 + 3 * config.num_layers


def test_all_hidden_states_are_returned():
    graph, params, config = random_model()
    ids, mask = (array[:, 0] for array in random_batch(2, 8))
    hidden_states = jax.eval_shape(lambda params: parameters.merge(graph, params).encoder(ids, mask), params)
    assert [state.shape for state in hidden_states] == [(2, 8, 32)] * (config.num_layers + 1)


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_the_key_s_bias_has_a_gradient_of_exactly_zero_and_the_others_do_not(model_type):
    """It is zero in exact arithmetic; from rounding noise, Adam would make steps that differ on every machine."""
    graph, params, _ = random_model(model_type)
    ids, mask = random_batch(4, 8)

    def total(params):
        model = parameters.merge(graph, params)
        return jnp.sum(jnp.sin(model(ids[:, 0], mask[:, 0], pooler="avg", use_head=False)))

    run = jax.jit(jax.value_and_grad(total))
    before, gradient = run(params)
    query, key, value = gradient["encoder.layers.0.qkv.bias"].reshape(3, -1)
    assert not key.any() and query.all() and value.all()
    # It still counts: the forward pass is the checkpoint's own.
    moved = params | {"encoder.layers.0.qkv.bias": params["encoder.layers.0.qkv.bias"] + 0.5}
    assert float(run(moved)[0]) != float(before)


class Instead(Norm):
    """Something else in the place of a norm."""

    def __init__(self, function):
        self.function = function

    def __call__(self, x, dtype=None):
        return self.function(x)


def test_a_relative_bias_moves_attention_to_the_keys_of_its_buckets():
    """One head is made to look at the next token alone: its context is that token's value."""
    graph, params, config = random_model("mpnet", num_layers=1)
    ids, mask = (array[:, 0] for array in random_batch(2, 8))
    size = config.hidden_size // config.num_heads
    table = np.zeros((32, config.num_heads), np.float32)
    table[17, 1] = 1e4  # 17: one position after the query
    only_context = {  # attention's output passes unchanged, in place of x
        "encoder.layers.0.attention_output.kernel": np.eye(32, dtype=np.float32),
        "encoder.layers.0.attention_output.bias": np.zeros(32, np.float32),
    }
    model = parameters.merge(graph, params | only_context | {"encoder.relative_bias": jnp.array(table)})
    x = model.encoder.embeddings(ids, mask, Padded(8), None)
    layer = model.encoder.layers[0]
    layer.attention_norm = Instead(lambda context: context - x)
    layer.intermediate.kernel[...] = 0 * layer.intermediate.kernel[...]  # the feed-forward part is a constant
    layer.output.bias[...] = 0 * layer.output.bias[...]
    layer.output_norm = Instead(lambda value: value)
    layer.intermediate.bias[...] = 0 * layer.intermediate.bias[...]
    context = np.asarray(model.encoder(ids, mask)[-1])
    value = np.asarray(x @ layer.qkv.kernel[...] + layer.qkv.bias[...])[:, :, 2 * 32 :]
    length = int(mask[0].sum())
    head = slice(size, 2 * size)
    np.testing.assert_allclose(context[0, : length - 1, head], value[0, 1:length, head], atol=1e-5)
    assert np.abs(context[0, : length - 1, :size] - value[0, 1:length, :size]).max() > 1e-2  # the other heads do not


@pytest.mark.parametrize(
    ("model_type", "missing", "others"),
    [
        ("distilbert", "attention_output", ("attention", "output")),
        ("albert", "output", ("attention", "attention_output")),
    ],
)
def test_what_an_encoder_does_not_drop_has_no_mask_and_the_others_keep_theirs(model_type, missing, others):
    drawn = {}
    for kind in ("bert", model_type):
        graph, params, _ = random_model(kind)
        encoder = parameters.merge(graph, params).encoder
        drawn[kind] = encoder.draw_masks(Padded(8), 8, row_keys(2), 0.1)[1]
    for mine, other in zip(drawn["bert"], drawn[model_type], strict=True):
        assert getattr(mine, missing) is not None and getattr(other, missing) is None
        for part in others:
            np.testing.assert_array_equal(getattr(mine, part).keep, getattr(other, part).keep)


@pytest.mark.parametrize("most_tokens", [None, pytest.param(ROWS * 14, marks=pytest.mark.slow)])
def test_other_first_tokens_take_the_places_of_those_in_the_first_layer_s_input(most_tokens):
    """After norm and dropout: the masks of the other tokens are the same, and the id that stood there is forgotten."""
    graph, params, _ = random_model()
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


@pytest.mark.slow
def test_shared_layers_are_those_of_an_encoder_with_a_copy_for_each_and_get_the_sum_of_their_gradients():
    """With the same masks, which belong to the place of a layer and not to its weights."""
    config = EncoderConfig.from_hugging_face(CONFIGS["albert"], "test")
    assert config.groups == [0, 0, 1]
    graph, params = parameters.split(SentenceEncoder(config, with_head=False, rngs=nnx.Rngs(0)))
    apart = dataclasses.replace(config, layer_groups=None)
    (own_graph, shapes), copies = build(apart, with_head=False), {}
    for name in shapes:
        *start, number, part, kind = name.split(".")
        shared = ".".join([*start, str(config.groups[int(number)]), part, kind]) if "layers" in start else name
        copies[name] = shared
    assert set(copies.values()) == set(params) and len(copies) > len(params)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, 16))
    target = np.random.default_rng(0).normal(size=(ROWS, 16, 32)).astype(np.float32) * mask[..., None]

    def loss(graph, params):
        states = parameters.merge(graph, params).encoder(ids, mask, dropout_keys=row_keys(ROWS))
        return sum(jnp.sum(jnp.sin(state) * target) for state in states), states

    run = jax.jit(jax.grad(loss, argnums=1, has_aux=True), static_argnums=0)
    gradient, states = run(graph, params)
    own, expected = run(own_graph, {name: params[shared] for name, shared in copies.items()})
    assert len(states) == len(expected) == 4
    np.testing.assert_allclose(states, expected, atol=1e-6)
    for shared, value in gradient.items():
        total = sum(own[name] for name, one in copies.items() if one == shared)
        np.testing.assert_allclose(value, total, atol=1e-5 * np.abs(total).max(), err_msg=shared)
        assert np.abs(value).max() > 0, shared  # each is used


@pytest.mark.parametrize("model_type", ["electra", "ernie"])
def test_embeddings_by_numpy(model_type):
    """Words, positions from 0, the first type, the first task if there are tasks; the norm; then the dense layer."""
    graph, params, config = random_model(model_type)
    ids, mask = (array[:, 0] for array in random_batch(3, 8))
    generator = np.random.default_rng(1)  # biases of a fresh encoder are 0, and scales 1
    params = {name: value + generator.normal(0, 0.1, value.shape).astype("f4") for name, value in params.items()}
    found = parameters.merge(graph, params).encoder.embeddings(ids, mask, Padded(8), None)
    of = {name.removeprefix("encoder.embeddings."): np.asarray(value, np.float64) for name, value in params.items()}
    x = of["word.embedding"][ids] + of["position.embedding"][:8] + of["type.embedding"][0]
    x += of["task.embedding"][0] if model_type == "ernie" else 0
    assert x.shape == (3, 8, config.table_size)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    x = x * of["norm.scale"] + of["norm.bias"]
    x = x @ of["projection.kernel"] + of["projection.bias"] if model_type == "electra" else x
    np.testing.assert_allclose(found, x, atol=1e-5)


def test_a_decoder_s_token_knows_those_before_it_alone_also_in_blocks(monkeypatch):
    """By the whole matrix of scores, and in blocks of queries as for a long text; Gemma reads both ways."""
    ids, mask = (array[:, 0] for array in random_batch(2, 16))
    mask[:] = 1
    other = ids.copy()
    other[:, 9:] = 4 + (ids[:, 9:] + 7) % 36
    states = {}
    for length in (512, 8):  # above which a text is long
        monkeypatch.setattr("simcse_jax.models.attention.LONG", length)
        monkeypatch.setattr("simcse_jax.models.attention.BLOCK", 4)
        for kind in ("mistral", "qwen3"):
            graph, params, _ = random_model(kind)
            run = jax.jit(
                lambda ids, graph=graph, params=params: parameters.merge(graph, params).encoder(ids, mask)[-1]
            )
            states[kind, length], changed = run(ids), run(other)
            np.testing.assert_allclose(states[kind, length][:, :9], changed[:, :9], atol=1e-6)
            assert np.abs(states[kind, length][:, 9:] - changed[:, 9:]).max(axis=-1).min() > 1e-3
        np.testing.assert_allclose(states["qwen3", length], states["qwen3", 512], atol=1e-5)
        np.testing.assert_allclose(states["mistral", length], states["mistral", 512], atol=1e-5)
    graph, params, _ = random_model("gemma3_text")
    both = [parameters.merge(graph, params).encoder(each, mask)[-1] for each in (ids, other)]
    assert np.abs(both[0][:, :9] - both[1][:, :9]).max() > 1e-3


@pytest.mark.parametrize("model_type", [BERT, *(kind for kind in ENCODERS if kind != "bert"), "qwen3"])
def test_masks_are_bit_equal_whatever_the_padding_and_without_it(model_type):
    """Of narrow embeddings and of layers that share their weights, too; no two places have the same."""
    graph, params, config = random_model(model_type)
    encoder, lengths = parameters.merge(graph, params).encoder, np.array([[8], [3], [1]])
    there, longer = (np.arange(length) < lengths for length in (8, 12))
    unpadded_12 = unpadded(longer.astype(np.int32), 14)
    embedding, layers = encoder.draw_masks(Padded(8), 8, row_keys(3), 0.3)
    assert embedding.keep.shape == (3, 8, config.table_size) and len(layers) == config.num_layers
    kept = []
    for layout in (Padded(12), unpadded_12):
        other_embedding, other_layers = encoder.draw_masks(layout, 12, row_keys(3), 0.3)
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


IDS, MASK = np.int32([[1, 2, 0], [3, 0, 0], [0, 0, 0]]), np.int32([[1, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_an_encoder_without_layers_gives_the_words_vectors():
    config = EncoderConfig.of_words(5, 4)
    assert (config.num_layers, config.max_length) == (0, 4096)
    graph, params = parameters.split(SentenceEncoder(config, with_head=False, rngs=nnx.Rngs(0)))
    assert list(params) == [parameters.WORD_EMBEDDING]
    table = jax.random.normal(jax.random.key(0), (5, 4))
    model = parameters.merge(graph, {parameters.WORD_EMBEDDING: table})
    (states,) = model.encoder(IDS, MASK)
    np.testing.assert_array_equal(states, table[IDS])
    expected = jnp.stack([(table[1] + table[2]) / 2, table[3], jnp.zeros(4)])
    np.testing.assert_allclose(model(IDS, MASK, pooler="avg", use_head=False), expected, atol=1e-6)
    unpadded = model(IDS, MASK, pooler="avg", use_head=False, most_tokens=4)
    np.testing.assert_allclose(unpadded, expected, atol=1e-6)
