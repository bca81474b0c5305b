import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS, random_batch, random_model, row_keys

from simcse_jax.config.fields import default_config
from simcse_jax.models import attention, parameters
from simcse_jax.models.attention import EVERYTHING, NO_ORDER, Near, Order, attend, head_by_head, in_blocks, whole
from simcse_jax.models.changes import Change
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.dropout import Draws
from simcse_jax.models.sentence_encoder import build
from simcse_jax.training.costs.compile import trace_step
from simcse_jax.training.setup import abstract_step

ROWS, LENGTH = 3, 22
ALL = (None, None)  # the reach of queries that see all keys


@pytest.fixture
def blocks(monkeypatch):
    """Texts of more than four tokens are long, and a block has eight queries."""
    monkeypatch.setattr(attention, "LONG", 4)
    monkeypatch.setattr(attention, "BLOCK", 8)


def factors(size=8, heads=2):
    generator = np.random.default_rng(0)
    query, key, value = (
        jnp.asarray(generator.standard_normal((ROWS, heads, LENGTH, size)), jnp.float32) for _ in range(3)
    )
    mask = jnp.arange(LENGTH)[None] < jnp.array([[LENGTH], [9], [1]])
    return query, key, value, mask.astype(jnp.int32)


def near(window, places=None):
    places = jnp.arange(LENGTH)[None] if places is None else places
    return Near(places, places, window, in_order=places.shape[0] == 1)


SHUFFLED = jnp.stack([jax.random.permutation(jax.random.key(row), LENGTH) for row in range(ROWS)])
SEEN = {"all": (None, None), "dropped": (None, 0.3), "3": (near(3), None), "shuffled": (near(3, SHUFFLED), None)}
OTHERS = {"0": (near(0), 0.3), "20": (near(20), 0.3)}


@pytest.mark.parametrize("kind", [*SEEN, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)])
def test_blocks_give_the_values_and_gradients_of_all_at_once(kind, blocks):
    (seen, rate), (*three, mask) = (SEEN | OTHERS)[kind], factors()
    draws = None if rate is None else Draws(row_keys(ROWS), 4, rate)
    weights = jnp.cos(jnp.arange(8.0)) * mask[:, None, :, None]

    def result(way, query, key, value):
        if way == "blocks":
            found = in_blocks(query, key, value, mask, seen, draws, jnp.float32)
        elif way == "heads":
            found = head_by_head(query, key, value, mask, seen, jnp.float32)
        else:
            kept = draws and draws.mask((2, LENGTH, LENGTH))
            found = whole(query, key, value, mask, None, seen and seen.seen(), kept, jnp.float32)
        return jnp.sum(jnp.sin(found) * weights), found * mask[:, None, :, None]

    def computed(way):
        return jax.jit(jax.value_and_grad(functools.partial(result, way), (0, 1, 2), has_aux=True))(*three)

    (_, expected), gradients = computed("at once")
    for way in ("blocks", "heads") if rate is None else ("blocks",):  # head by head nothing is dropped
        (_, got), of_blocks = computed(way)
        np.testing.assert_allclose(got, expected, atol=1e-6, err_msg=way)
        for name, mine, other in zip("qkv", of_blocks, gradients, strict=True):
            np.testing.assert_allclose(mine, other, atol=2e-6, err_msg=f"{way}: {name}")
    if seen is not None and rate is None:  # the test can fail
        unseen = whole(*three, mask, None, None, None, jnp.float32) * mask[:, None, :, None]
        assert np.abs(expected - unseen).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "num_layers", "first_only"), [("mistral", 1, False), ("modernbert", 2, False), ("bert", 2, True)]
)
def test_an_encoder_of_long_texts_is_the_same_encoder(model_type, num_layers, first_only, monkeypatch):
    graph, params, _ = random_model(model_type, num_layers=num_layers)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, LENGTH))
    dropped = {"dropout_keys": row_keys(ROWS), "dropout_rate": 0.2, "first_only": first_only}

    def last(**options):
        run = jax.jit(lambda params: parameters.merge(graph, params).encoder(ids, mask, **dropped, **options)[-1])
        found = run(params)  # a new one each time: the constants are read while it is traced
        return found * mask[:, : found.shape[1], None]

    expected = last()
    monkeypatch.setattr(attention, "LONG", 4)
    monkeypatch.setattr(attention, "BLOCK", 8)
    np.testing.assert_allclose(last(), expected, atol=1e-5)
    np.testing.assert_allclose(last(most_tokens=int(mask.sum())), expected, atol=1e-5)


@pytest.mark.slow
def test_a_cpu_has_one_head_s_scores_at_a_time_and_memory_grows_with_the_length_in_both_passes(monkeypatch):
    def temporaries(attend, length=2048, dropout=None):
        def loss(*three):
            return jnp.sum(attend(*three, jnp.ones((2, length), jnp.int32), dropout=dropout, dtype=jnp.float32) ** 2)

        compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*[jnp.ones((2, 4, length, 8))] * 3).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    own = functools.partial(attention.attend, order=attention.NO_ORDER)
    of_long, scores = temporaries(own), 128 * 2048 * 4  # bytes, of a block
    assert temporaries(functools.partial(in_blocks, near=None)) - of_long > 6 * scores
    dropped = functools.partial(temporaries, own, dropout=Draws(row_keys(2), 4, 0.1))
    assert of_long < 2.5 * temporaries(own, 1024) and dropped() < 2.5 * dropped(1024)
    monkeypatch.setattr(attention, "LONG", 4096)
    assert temporaries(own) > 3 * of_long


def test_without_a_rate_of_attention_no_mask_is_drawn_for_it():
    graph, params, _ = random_model("bert", num_layers=1)
    ids, mask = (array[:, 0] for array in random_batch(2, 8))

    def program(rate):
        def run(keys):
            encoder = parameters.merge(graph, params).encoder
            return encoder(ids, mask, dropout_keys=keys, dropout_rate=0.1, attention_dropout_rate=rate)[-1]

        return str(jax.make_jaxpr(run)(row_keys(2)))

    assert len(program(0.0)) < len(program(jnp.float32(0.0)))


TEXTS = 4
chosen_by_platform = jax.lax.platform_dependent


def compiled_for_gpus(monkeypatch):
    """Long attention is a GPU's, whose kernel gives the queries; returns a list that grows with each kernel."""
    used = []

    def choose(*args, default=None, **branches):
        if "cuda" in branches and default.func is in_blocks:
            used.append("cuda")
            return branches["cuda"](*args)
        return chosen_by_platform(*args, default=default, **branches)

    monkeypatch.setattr(jax.lax, "platform_dependent", choose)
    monkeypatch.setattr(attention, "installed", lambda name: True)
    monkeypatch.setattr(attention, "cudnn", lambda query, *_, reach: query + 1)
    return used


def model_with_kernels(model_type):
    _, params, config = random_model(model_type, num_layers=2)
    config = dataclasses.replace(config, attention_kernels=True)
    return build(config, True, jnp.bfloat16)[0], params, config


def number_of(graph, rate=0.0, positions=None, **options):
    """A new function of parameters, ids, mask and keys: a number of the last hidden states."""

    def loss(params, ids, mask, keys):
        dropped = {"dropout_keys": keys, "dropout_rate": 0.2, "attention_dropout_rate": rate}
        encoder = parameters.merge(graph, params).encoder
        last = encoder(ids, mask, change=Change(positions=positions), **dropped, **options)[-1]
        return jnp.sum(jnp.sin(last.astype(jnp.float32)) * mask[:, :, None])

    return loss


@pytest.fixture
def batch():
    ids, mask = (jnp.asarray(array[:, 0]) for array in random_batch(TEXTS, LENGTH))
    return ids, mask, row_keys(TEXTS)


@pytest.mark.slow
def test_kernels_are_left_out_where_they_do_not_apply(blocks, batch, monkeypatch):
    graph, params, config = model_with_kernels("modernbert")
    used = compiled_for_gpus(monkeypatch)
    jax.eval_shape(number_of(graph, rate=0.1), params, *batch)
    assert not used  # attention's dropout
    jax.eval_shape(number_of(graph), params, *batch)
    of_layer, rest = divmod(len(used), config.num_layers)
    assert of_layer and not rest
    used.clear()
    places = jnp.arange(LENGTH)[None] * jnp.ones((TEXTS, 1), jnp.int32)
    jax.eval_shape(number_of(graph, positions=places[:, ::-1]), params, *batch)
    assert config.local_layers and len(used) == of_layer * (config.num_layers - len(config.local_layers))
    used.clear()
    without, _ = build(dataclasses.replace(config, attention_kernels=False), True)
    jax.eval_shape(number_of(without), params, *batch)
    assert not used
    monkeypatch.setattr(attention, "LONG", LENGTH)
    jax.eval_shape(number_of(graph), params, *batch)
    assert not used  # a short text


def test_cudnn_is_taken_where_it_can_compute_it(monkeypatch):
    used = compiled_for_gpus(monkeypatch)
    places = jnp.arange(600)[None]
    windows = [Near(places, places, 64, True), Near(places, places, EVERYTHING, True, causal=True)]
    for order, dtype, size, applies in (
        *((order, jnp.bfloat16, 64, True) for order in (NO_ORDER, *(Order(near=window) for window in windows))),
        *((NO_ORDER, jnp.bfloat16, 128, True), (NO_ORDER, jnp.bfloat16, 136, False)),
        *((NO_ORDER, jnp.float32, 64, False), (NO_ORDER, jnp.bfloat16, 36, False)),
    ):
        used.clear()
        three = [jnp.ones((1, 2, 600, size), dtype)] * 3
        found = attend(*three, jnp.ones((1, 600), jnp.int32), order, None, dtype, kernels=True)
        assert bool(used) == applies and round(float(found[0, 0, 0, 0])) == (2 if applies else 1), (order, dtype, size)


def as_jax_computes_it(*args, implementation, compute=jax.nn.dot_product_attention, **options):
    """What cuDNN is asked for, by JAX's own operations on any platform."""
    assert implementation == "cudnn" and options["key_value_seq_lengths"].ndim == 1
    return compute(*args, implementation="xla", **options)


WINDOWS = [(None, False), (3, False), (3, True), (EVERYTHING, True)]
MORE = [pytest.param(window, False, marks=pytest.mark.slow) for window in (0, LENGTH - 1)]


@pytest.mark.parametrize(("window", "causal"), [*WINDOWS, *MORE])
def test_cudnn_s_windows_are_on_both_sides_of_a_query_or_before_it(window, causal, monkeypatch):
    monkeypatch.setattr(jax.nn, "dot_product_attention", as_jax_computes_it)
    three = [jax.random.normal(jax.random.key(n), (TEXTS, 2, LENGTH, 8)).astype(jnp.bfloat16) for n in range(3)]
    mask = (jnp.arange(LENGTH) < jnp.array([[LENGTH], [9], [2], [1]])).astype(jnp.int32)
    places = jnp.arange(LENGTH)[None]
    near = None if window is None else Near(places, places, window, True, causal)
    kept = mask[:, None, :, None].astype(jnp.float32)

    def result(attend, *three):
        found = attend(*three).astype(jnp.float32) * kept
        return jnp.sum(jnp.sin(3 * found)), found

    def at_once(*three):
        return whole(*three, mask, None, near and near.seen(), None, jnp.bfloat16)

    def kernel(*three):
        return attention.cudnn(*three, mask, reach=ALL if near is None else near.reach)

    run = jax.jit(jax.value_and_grad(result, (1, 2, 3), has_aux=True), static_argnums=0)
    (_, expected), gradients = run(at_once, *three)
    (_, found), of_kernel = run(kernel, *three)
    np.testing.assert_allclose(found, expected, atol=0.02)
    for mine, other in zip(of_kernel, gradients, strict=True):
        largest = float(jnp.abs(other).max())
        np.testing.assert_allclose(mine.astype(jnp.float32), other.astype(jnp.float32), atol=0.03 * largest + 1e-6)
    # A mask that is no length gives NaN.
    found = attention.cudnn(*three, mask.at[1, 3].set(0), reach=ALL)
    assert bool(jnp.isnan(found[1]).all()) and bool(jnp.isfinite(found[jnp.array([0, 2, 3])]).all())


@pytest.mark.slow
@pytest.mark.platforms
def test_a_step_of_several_devices_with_kernels_is_lowered_for_gpus(monkeypatch):
    monkeypatch.setattr(attention, "installed", lambda name: True)
    # Of the plugin, which need not be installed for this.
    monkeypatch.setattr("jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version", lambda: 92000)
    config = default_config()
    config.update_from_flattened_dict({"train.batch_size": 4, "train.dtype": "bfloat16", "data.max_length": 640})
    config.model.update({"attention_dropout": 0.0, "attention_kernels": True, "pooler": "avg", "mlp": "none"})
    encoder = dataclasses.replace(EncoderConfig.from_hugging_face(CONFIGS["modernbert"], "test"), max_positions=640)
    traced = trace_step(abstract_step(config, encoder, 1), jax.devices()[:2])
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("__cudnn$fmhaSoftmax") >= 2 * encoder.num_layers and "fmhaSoftmaxBackward" in text
    assert [text.count(rf"sliding_window_length\22: {places}") > 0 for places in (0, 4, 5)] == [True, False, True]


@pytest.mark.platforms
@pytest.mark.parametrize("kernels", [True, False])
def test_without_a_plugin_or_unasked_a_program_has_no_kernels(kernels, monkeypatch):
    monkeypatch.setattr(attention, "installed", lambda name: not kernels)
    monkeypatch.setattr(attention, "cudnn", None)  # fails where it is traced
    three = [jnp.ones((1, 2, 640, 64), jnp.bfloat16)] * 3
    own = functools.partial(attend, order=NO_ORDER, dropout=None, dtype=jnp.bfloat16, kernels=kernels)
    assert round(float(jax.jit(own)(*three, attention_mask=jnp.ones((1, 640), jnp.int32))[0, 0, 0, 0])) == 1
