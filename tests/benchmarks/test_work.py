import sys

import jax
import jax.numpy as jnp
import pytest
from support import ROOT, random_batch, random_model

from simcse_jax.devices.flops import product_flops
from simcse_jax.models import parameters

sys.path.insert(0, str(ROOT))
from benchmarks.work import encoder_flops, training_flops


@pytest.mark.slow
def test_it_counts_what_an_encoder_multiplies_where_nothing_is_padding():
    graph, params, config = random_model()
    ids, mask = (jnp.asarray(array[:, 0]) for array in random_batch(4, 16))

    def encode(params):
        return parameters.merge(graph, params)(ids, jnp.ones_like(mask), pooler="avg", use_head=True)

    counted = product_flops(jax.jit(encode).trace(params).jaxpr).total()
    assert encoder_flops(config, [16] * 4, head=True) == counted


def test_padding_is_not_counted_and_training_is_three_times_encoding():
    _, _, config = random_model()
    short, long = encoder_flops(config, [5]), encoder_flops(config, [10])
    assert 2 * short < long < 4 * short and encoder_flops(config, [5, 10]) == short + long
    assert training_flops(config, [[5, 10], [10, 5]], head=False) == 3 * (short + long)
