import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from support import random_model
from support.gradients import assert_same, compiled, computed
from support.steps import batch, recipe, replaced_tokens_settings, replaced_tokens_step, settings

from simcse_jax.devices import mesh
from simcse_jax.devices.mesh import AXIS, data_mesh, split_over_examples
from simcse_jax.devices.parts import distribute
from simcse_jax.encoding.embedder import make_embed, make_hidden_states
from simcse_jax.models import parameters
from simcse_jax.training import gathering
from simcse_jax.training.gathering import ByLayer, make_gathering, product_dtype
from simcse_jax.training.loss import make_loss

WORDS = parameters.WORD_EMBEDDING
KERNEL = "encoder.layers.0.qkv.kernel"


@pytest.mark.parametrize(("tokens", "tables"), [(0, ()), (5, (WORDS,)), (6, ())])
def test_rows_are_exchanged_of_word_embeddings_that_are_large_enough(tokens, tables):
    """40 words on 2 devices, which each need at most 5 of them."""
    graph, params, _ = random_model(num_layers=1, dtype=jnp.bfloat16)
    made, _ = make_gathering(graph, params, {}, data_mesh(jax.devices()[:2]), tokens)
    assert made.tables == tables and not made.late
    assert made.split[WORDS] == P(AXIS)
    assert (made.sent[WORDS], made.sent[KERNEL]) == (jnp.float32, jnp.bfloat16)
    assert product_dtype(graph, params) == jnp.bfloat16


def test_what_a_device_looks_up_in_its_tables_is_what_stands_in_the_whole_ones():
    """RoBERTa asks which tokens are padding, whose id is 1: the same ones as in the batch, and no second token."""
    graph, params, _ = random_model("roberta", num_layers=1)
    params |= {parameters.SECOND + WORDS: 2 * params[WORDS]}
    mesh = data_mesh(jax.devices()[:2])
    made, _ = make_gathering(graph, params, {}, mesh, 5)
    assert len(made.tables) == 2
    ids = batch(3)["input_ids"][:, :, :2].copy()
    ids[0, 0], ids[-1, 0] = (7, 8), (9, 1)

    def look_up(parts, ids):
        whole, shown = made(parts, {"input_ids": ids})
        found = tuple(whole[name][shown["input_ids"]] for name in (WORDS, parameters.SECOND + WORDS))
        return *found, shown["input_ids"] == 1

    function = jax.shard_map(look_up, mesh=mesh, in_specs=(made.split, P(AXIS)), out_specs=P(AXIS))
    first, second, is_padding = jax.jit(function)(params, ids)
    np.testing.assert_array_equal(is_padding, ids == 1)
    np.testing.assert_array_equal(first, np.asarray(params[WORDS])[ids])
    np.testing.assert_array_equal(second, 2 * np.asarray(params[WORDS])[ids])


@pytest.fixture
def in_small(monkeypatch):
    """Of a tiny model, too, layers are gathered when they compute, and rows of the words that they need exchanged."""
    monkeypatch.setattr("simcse_jax.training.gathering.SMALL", 512)  # kernels are larger, biases and norms smaller
    monkeypatch.setattr(gathering, "is_exchange_cheaper", lambda rows, split, tokens, devices: AXIS in split)


def gradient(devices=1, parts=0, columns=3, model_type="bert", dtype=jnp.float32, pooler="avg", **changes):
    """With the pooler `cls` the last layer is not like the others: it is computed for first tokens alone."""
    graph, params, _ = random_model(model_type, dtype=dtype)
    function = compiled(graph, recipe(columns, pooler=pooler, **changes), devices, parts)
    return computed(function, params, batch(columns), settings())


@pytest.mark.slow
@pytest.mark.exact
@pytest.mark.parametrize(
    ("devices", "parts", "columns", "changes"),
    [(4, 2, 1, {"by_layer": True, "chunk_size": 1}), *((8, 1, 3, {"by_layer": True}), (4, 2, 3, {"chunk_size": 1}))],
)
def test_the_gradient_is_the_same_by_layer_and_on_two_axes_of_devices(devices, parts, columns, changes, in_small):
    assert_same(gradient(devices, parts, columns, **changes), gradient(columns=columns))


@pytest.mark.slow
@pytest.mark.exact
def test_a_decoder_in_bfloat16_has_the_same_loss_by_layer(in_small):
    """Bit for bit. In gradients a layer that is computed again may round a factor to its neighbour."""
    of_decoder = (4, 2, 2, "qwen3", jnp.bfloat16)
    at_once, by_layer = (gradient(*of_decoder, chunk_size=1, by_layer=by_layer) for by_layer in (False, True))
    assert by_layer[0] == at_once[0]
    assert_same(by_layer, at_once, 1e-2)


@pytest.mark.slow
@pytest.mark.exact
def test_a_generator_that_does_not_train_is_in_parts_too(in_small):
    graph, params, frozen, chosen = replaced_tokens_step()

    def compute(devices, parts, **changes):
        function = compiled(graph, chosen._replace(**changes), devices, parts)
        return computed(function, params, batch(1), replaced_tokens_settings(), frozen)

    assert_same(compute(4, 2, by_layer=True, chunk_size=1), compute(1, 1))


def gathers(jaxpr, inside=()):
    """(shape of the whole array, names of the primitives around it) of each exchange that gathers."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "all_gather":
            yield equation.outvars[0].aval.shape, inside
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                yield from gathers(part, (*inside, equation.primitive.name))


@pytest.mark.slow
def test_a_layer_is_gathered_where_it_computes_forward_and_backward(in_small):
    """Both in a loop, or each apart if they differ. Otherwise they are gathered before all else."""
    graph, params, _ = random_model()

    def found(by_layer, pooler="avg"):
        function = make_loss(graph, recipe(1, by_layer=by_layer, pooler=pooler), data_mesh(jax.devices()[:2]))
        jaxpr = jax.make_jaxpr(function)(params, jnp.int32(0), batch(1), settings())
        all_of_them = [inside[1:-1] for shape, inside in gathers(jaxpr.jaxpr) if shape == params[KERNEL].shape]
        # Some are dead code: what objectives could read.
        return sorted(inside for inside in all_of_them if inside or not by_layer)

    assert found(False) == [(), ()] and found(True) == [("scan",), ("scan", "remat2")]
    assert found(True, "cls") == [*[("cond",)] * 2, *[("cond", "remat2")] * 2]


@pytest.mark.exact
@pytest.mark.slow
def test_a_model_in_parts_is_scored_by_layer_and_never_whole(in_small):
    """Its embeddings are those of the whole model, also where padding is not computed, and so are its tokens'."""
    graph, params, _ = random_model()
    sharding = split_over_examples(data_mesh(jax.devices()[:4], 2))
    ids, mask = (batch(1)[name][:, 0] for name in ("input_ids", "attention_mask"))
    split, by_layer = distribute(params, sharding.mesh), ByLayer(graph, sharding.mesh)

    def embedded(params, most_tokens=None, **how):
        function = make_embed(graph, "cls", False, sharding, most_tokens=most_tokens, **how)
        return function, np.asarray(function(params, ids, mask))

    _, expected = embedded(params)
    function, found = embedded(split, by_rows=by_layer)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(embedded(split, mask.size // 4, by_rows=by_layer)[1], expected, atol=1e-5)
    jaxpr = jax.make_jaxpr(function)(split, ids, mask).jaxpr
    kernels = [inside for shape, inside in gathers(jaxpr) if shape == params[KERNEL].shape]
    assert kernels and all({"scan", "cond"} & {*inside} for inside in kernels)
    states, expected = (
        make_hidden_states(graph, sharding, False, by_rows)(params, ids, mask)
        for params, by_rows in ((split, by_layer), (params, mesh.compile_by_rows))
    )
    np.testing.assert_allclose(states, expected, atol=1e-5)
