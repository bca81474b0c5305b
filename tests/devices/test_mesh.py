import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.devices.mesh import (
    compile_by_rows,
    data_mesh,
    place,
    replicate,
    replicated_sharding,
)
from simcse_jax.devices.mesh import split_over_examples as by_example


@pytest.fixture
def mesh():
    return data_mesh(jax.devices()[:4])


def test_each_device_s_rows_are_read_and_no_others(mesh):
    rows = {"a": np.arange(24).reshape(8, 3), "b": np.arange(8)}
    asked = []

    def read(part):
        asked.append(part)
        return {name: value[part] for name, value in rows.items()}

    placed = place(read, 8, by_example(mesh))
    assert sorted((part.start, part.stop) for part in asked) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    for name, value in rows.items():
        np.testing.assert_array_equal(placed[name], value)
        assert [shard.data.shape[0] for shard in placed[name].addressable_shards] == [2] * 4


def test_a_replicated_array_is_whole_on_every_device_and_a_function_of_rows_is_computed_by_all(mesh):
    tree = replicate({"a": np.arange(6).reshape(2, 3), "b": np.float32(2)}, replicated_sharding(mesh))
    assert tree["a"].is_fully_replicated and len(tree["a"].addressable_shards) == 4
    np.testing.assert_array_equal(tree["a"].addressable_shards[3].data, np.arange(6).reshape(2, 3))
    assert tree["b"].shape == () and float(tree["b"]) == 2

    def function(params, x, y):
        traced.append(x.shape)
        return jnp.tanh(x @ params["w"]) + y[:, None]

    params, x, y = {"w": np.eye(3, dtype=np.float32)}, np.arange(24.0, dtype=np.float32).reshape(8, 3), np.arange(8.0)
    traced = []
    expected = compile_by_rows(function, None)(params, x, y)
    found = compile_by_rows(function, by_example(mesh))(params, x, y)
    assert traced[0] == (8, 3) and traced[-1] == (2, 3)  # what a device computes
    np.testing.assert_array_equal(found, expected)
    assert [shard.data.shape for shard in found.addressable_shards] == [(2, 3)] * 4
