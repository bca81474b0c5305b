import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from support import random_model
from support.steps import batch

from simcse_jax.devices.mesh import AXIS, data_mesh
from simcse_jax.models import parameters
from simcse_jax.training.gathering import make_gathering, type_of_products

WORDS = parameters.WORD_EMBEDDING


@pytest.mark.parametrize(("tokens", "tables"), [(0, ()), (5, (WORDS,)), (6, ())])
def test_rows_are_exchanged_of_word_embeddings_that_are_large_enough(tokens, tables):
    """40 words on 2 devices, which each need at most 5 of them."""
    graph, params, _ = random_model(num_layers=1, dtype=jnp.bfloat16)
    made = make_gathering(graph, params, None, data_mesh(jax.devices()[:2]), tokens)
    assert made.tables == tables
    assert made.way.keys() == params.keys() - set(tables)
    assert made.split[WORDS] == P(AXIS)
    assert (made.sent[WORDS], made.sent["encoder.layers.0.qkv.kernel"]) == (jnp.float32, jnp.bfloat16)
    assert type_of_products(graph, params) == jnp.bfloat16


@pytest.mark.parametrize("tokens", [0, 5])
def test_what_a_device_looks_up_in_its_tables_is_what_stands_in_the_whole_ones(tokens):
    graph, params, _ = random_model(num_layers=1)
    params |= {parameters.SECOND + WORDS: 2 * params[WORDS]}
    mesh = data_mesh(jax.devices()[:2])
    made = make_gathering(graph, params, None, mesh, tokens)
    assert len(made.tables) == (2 if tokens else 0)
    ids = batch(3)["input_ids"][:, :, :2]

    def look_up(parts, ids):
        whole, shown = made(parts, {"input_ids": ids})
        return tuple(whole[name][shown["input_ids"]] for name in (WORDS, parameters.SECOND + WORDS))

    function = jax.shard_map(look_up, mesh=mesh, in_specs=(made.split, P(AXIS)), out_specs=P(AXIS))
    first, second = jax.jit(function)(params, ids)
    np.testing.assert_array_equal(first, np.asarray(params[WORDS])[ids])
    np.testing.assert_array_equal(second, 2 * np.asarray(params[WORDS])[ids])
