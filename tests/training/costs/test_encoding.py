import jax
import pytest
from support.costs import TINY, tiny_config

from simcse_jax.devices.flops import product_flops
from simcse_jax.training.costs import encoding

pytestmark = pytest.mark.platforms


def flops(**fields):
    config = tiny_config(**{"model.pooler": "avg", "model.mlp": "none", "train.batch_size": 32} | fields)
    return dict(product_flops(encoding.trace_encoding(config, TINY, 24, jax.devices()).jaxpr))


def test_encoding_computes_each_layer_once():
    rows = 32 // len(jax.devices())  # of one device
    tokens, size, inner = 24, TINY.hidden_size, TINY.intermediate_size
    layer = 2 * rows * tokens * (4 * size * size + 2 * size * inner) + 4 * rows * tokens * tokens * size
    whole = TINY.num_layers * layer
    assert flops() == {6: whole}
    # As a run is scored: without the head of training, and with one that stays.
    assert flops(**{"model.mlp": "train"}) == {6: whole}
    head = 2 * rows * size * size
    assert flops(**{"model.mlp": "always"}) == {6: whole + head}
    assert flops(**{"model.pooler": "cls", "model.mlp": "none"})[6] < whole
    # Only the head, of float32, is not rounded.
    assert flops(**{"train.dtype": "bfloat16", "model.mlp": "always"}) == {1: whole, 6: head}
