import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_batch, random_model, row_keys

from simcse_jax.models import attention, parameters
from simcse_jax.models.attention import Near, head_by_head, in_blocks, whole
from simcse_jax.models.changes import Change
from simcse_jax.models.dropout import Draws
from simcse_jax.models.sentence_encoder import build

ROWS, LENGTH = 3, 22


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


@pytest.mark.parametrize("rate", [None, 0.3])
@pytest.mark.parametrize(
    "seen", [None, near(0), near(3), near(8), near(20), near(3, SHUFFLED)], ids=["all", "0", "3", "8", "20", "shuffled"]
)
def test_blocks_give_the_values_and_gradients_of_all_at_once(seen, rate, blocks):
    *three, mask = factors()
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
        return jax.value_and_grad(functools.partial(result, way), (0, 1, 2), has_aux=True)

    (_, expected), gradients = computed("at once")(*three)
    for way in ("blocks", "heads") if rate is None else ("blocks",):  # head by head nothing is dropped
        (_, got), of_blocks = jax.jit(computed(way))(*three)
        np.testing.assert_allclose(got, expected, atol=1e-6, err_msg=way)
        for name, mine, other in zip("qkv", of_blocks, gradients, strict=True):
            np.testing.assert_allclose(mine, other, atol=2e-6, err_msg=f"{way}: {name}")
    if seen is not None and rate is None and seen.window < LENGTH:  # the test can fail
        unseen = whole(*three, mask, None, None, None, jnp.float32) * mask[:, None, :, None]
        assert np.abs(expected - unseen).max() > (0.01 if seen.window < 20 else 0)


def test_a_block_draws_the_same_masks_as_all_at_once():
    draws = Draws(row_keys(ROWS), 7, 0.5)
    expected = draws.mask((5, LENGTH, LENGTH)).keep
    part = draws.mask((5, 4, 6), (3, jnp.int32(11))).keep
    np.testing.assert_array_equal(part, expected[:, :, 3:7, 11:17])
    assert not np.array_equal(part, expected[:, :, :4, :6])


@pytest.mark.parametrize(
    ("first_only", "model_type"),
    [
        (False, "modernbert"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((False, "bert"), (False, "mpnet"), (True, "bert"), (True, "mpnet"), (True, "modernbert"))
        ),
    ],
)
def test_an_encoder_of_long_texts_is_the_same_encoder(model_type, first_only, monkeypatch):
    graph, params, _ = random_model(model_type)
    ids, mask = (array[:, 0] for array in random_batch(ROWS, LENGTH))
    places = jnp.arange(LENGTH)[None] * jnp.ones((ROWS, 1), jnp.int32)
    swapped = Change(positions=places.at[:, 1].set(2).at[:, 2].set(1))

    def run(**options):
        @jax.jit  # a new one each time: the constants are read while it is traced
        def gradient(params):
            def loss(params):
                last = parameters.merge(graph, params).encoder(
                    ids, mask, dropout_keys=row_keys(ROWS), dropout_rate=0.2, first_only=first_only, **options
                )[-1]
                return jnp.sum(jnp.sin(last) * mask[:, : last.shape[1], None])

            return jax.value_and_grad(loss)(params)

        return gradient(params)

    cases = {"in order": {}, "swapped": {"change": swapped}, "unpadded": {"most_tokens": int(mask.sum())}}
    expected = {name: run(**cases[name]) for name in ("in order", "swapped")}
    expected["unpadded"] = expected["in order"]  # which padding changes in nothing
    assert abs(expected["in order"][0] - expected["swapped"][0]) > 1e-3
    monkeypatch.setattr(attention, "LONG", 4)
    monkeypatch.setattr(attention, "BLOCK", 8)
    for name, options in cases.items():
        value, gradients = run(**options)
        np.testing.assert_allclose(value, expected[name][0], rtol=1e-5, err_msg=name)
        largest = max(float(jnp.abs(each).max()) for each in expected[name][1].values())
        for parameter, each in gradients.items():
            other = expected[name][1][parameter]
            np.testing.assert_allclose(each, other, atol=1e-5 * largest, err_msg=f"{name}: {parameter}")


def test_a_cpu_has_one_head_s_scores_at_a_time_in_both_passes():
    query = jnp.ones((2, 4, 2048, 8))

    def temporaries(attend):
        def loss(*three):
            return jnp.sum(attend(*three, jnp.ones((2, 2048), jnp.int32)) ** 2)

        compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(query, query, query).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    alone = {"dropout": None, "dtype": jnp.float32}
    of_long = temporaries(functools.partial(attention.attend, order=attention.NO_ORDER, **alone))
    together = temporaries(functools.partial(in_blocks, near=None, **alone))
    scores = 128 * 2048 * 4  # bytes, of a block
    assert together - of_long > 6 * scores


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_memory_grows_with_the_length_and_not_with_its_square(model_type, monkeypatch):
    config = dataclasses.replace(random_model(model_type)[2], max_positions=4096)
    graph, params = build(config, with_head=False)

    def temporaries(length):
        tokens = jnp.ones((1, length), jnp.int32)

        def loss(params):
            encoder = parameters.merge(graph, params).encoder
            return jnp.sum(encoder(tokens, tokens, dropout_keys=row_keys(1), dropout_rate=0.1)[-1] ** 2)

        return jax.jit(jax.grad(loss)).lower(params).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(2048) < 2.5 * temporaries(1024)
    monkeypatch.setattr(attention, "LONG", 4096)
    assert temporaries(2048) > 3 * temporaries(1024)


def test_without_a_rate_of_attention_no_mask_is_drawn_for_it():
    graph, params, _ = random_model("bert")
    ids, mask = (array[:, 0] for array in random_batch(2, 8))

    def program(rate):
        encoder = parameters.merge(graph, params).encoder
        run = lambda keys: encoder(ids, mask, dropout_keys=keys, dropout_rate=0.1, attention_dropout_rate=rate)[-1]  # noqa: E731
        return str(jax.make_jaxpr(run)(row_keys(2))), run(row_keys(2))

    (drawn, values), (none, without) = program(jnp.float32(0.0)), program(0.0)
    assert len(none) < len(drawn)
    np.testing.assert_array_equal(values, without)
