import numpy as np
import pytest

from simcse_jax.huggingface.weighted_layers import is_written_as, layer_weights, pooling_for


def test_layer_weights():
    assert layer_weights("avg", 3) is None
    np.testing.assert_array_equal(layer_weights("avg_top2", 3), [0, 0, 1, 1])
    np.testing.assert_array_equal(layer_weights("avg_first_last", 3), [0, 1, 0, 1])
    np.testing.assert_array_equal(layer_weights("avg_static_last", 3), [1, 0, 0, 1])
    np.testing.assert_array_equal(layer_weights("avg_first_last", 1), [0, 2])


@pytest.mark.parametrize(
    ("pooler", "layers", "read", "same"),
    [
        ("cls_before_pooler", 2, "cls", True),
        ("avg_first_last", 2, "avg_top2", True),
        ("avg_first_last", 1, "avg", True),
        ("avg_first_last", 3, "avg_top2", False),
        ("avg_first_last", 3, "avg", False),
        ("cls", 3, "avg", False),
        ("avg", 3, "avg+cls", False),
    ],
)
def test_poolers_are_written_as_the_same_modules(pooler, layers, read, same):
    assert is_written_as(pooler, layers, read) is same


def test_a_mean_of_layers_is_written_before_the_mean_of_tokens():
    tokens, weights = pooling_for("avg_top2", 2)
    assert (tokens, weights.tolist()) == ("avg", [0, 1, 1])
    assert pooling_for("max", 2) == ("max", None)
