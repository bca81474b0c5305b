import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.mesh import AXIS, data_mesh
from simcse_jax.devices.parts import (
    constrain,
    distribute,
    gather,
    gather_rows,
    is_exchange_cheaper,
    replicate_whole,
    spec,
)


def over(count, in_specs, out_specs):
    """Decorates a function of each device's part of its arguments."""
    mesh = data_mesh(jax.devices()[:count])
    return lambda function: jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs))


def test_an_array_is_split_along_its_longest_axis_that_the_devices_divide():
    for shape, devices, expected in (
        ((30522, 768), 8, P(None, AXIS)),  # 30,522 rows cannot be divided by 8
        ((768, 3072), 8, P(None, AXIS)),
        ((3072, 768), 8, P(AXIS)),
        ((8, 8), 8, P(AXIS)),
        ((768,), 8, P(AXIS)),
        ((3,), 2, P()),
        ((), 2, P()),
        ((0, 3), 2, P()),
        ((64, 64), 1, P()),
    ):
        assert spec(shape, devices) == expected, shape


SHAPES = {"rows": (8, 3), "columns": (2, 4), "odd": (3, 5), "number": ()}


def arrays():
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("devices", [1, 4])
def test_a_state_is_distributed_updated_where_it_is_and_put_together_again(devices):
    mesh = data_mesh(jax.devices()[:devices])
    state = arrays()
    placed = distribute(state, mesh)
    update = jax.jit(lambda state: constrain(jax.tree.map(lambda x: x * 2, state), mesh), donate_argnums=0)
    updated = update(update(placed))
    assert update._cache_size() == 1
    part = {"rows": (8 // devices, 3), "columns": (2, 4 // devices), "odd": (3, 5), "number": ()}
    together = replicate_whole(updated, mesh)
    for name, shape in part.items():
        assert updated[name].addressable_shards[0].data.shape == shape
        assert together[name].is_fully_replicated
        np.testing.assert_array_equal(together[name], state[name] * 4)


@pytest.mark.parametrize(("name", "split", "dtype"), [
    ("rows", P(AXIS), jnp.float32), ("columns", P(None, AXIS), jnp.bfloat16), ("odd", P(), jnp.float32)
])  # fmt: skip
def test_a_gathered_array_is_rounded_and_its_gradient_is_summed_in_float32(name, split, dtype):
    """Four devices' gradients of 1 and 3 times 2⁻⁸, whose sum bfloat16 cannot hold."""
    array, small = arrays()[name], np.array([1, 2**-8, 2**-8, 2**-8], np.float32)

    @over(4, (split, P(AXIS)), (P(), split))
    def function(part, factor):
        def loss(part):
            array = gather(part, split, jnp.dtype(dtype))
            return jax.lax.psum(jnp.sum(array) * factor[0], AXIS)

        return jax.value_and_grad(loss)(part)

    value, gradient = function(array, small)
    rounded = np.asarray(jnp.asarray(array).astype(dtype).astype(jnp.float32))
    np.testing.assert_allclose(value, rounded.sum() * small.sum(), rtol=1e-6)
    np.testing.assert_array_equal(gradient, np.full_like(array, small.sum()))


@pytest.mark.parametrize("split", [P(AXIS), P(None, AXIS)])
def test_each_device_gets_the_rows_that_it_needs_and_their_gradients_are_added_up(split):
    """Integers, whose sums are exact; rows that several devices need, or one of them twice."""
    random = np.random.default_rng(0)
    table = random.integers(-9, 9, (16, 8)).astype(np.float32)
    numbers = np.concatenate([random.integers(0, 16, 18), [3, 3, 3, 0, 15, 3]]).astype(np.int32)  # 6 a device
    factors = random.integers(-9, 9, (24, 8)).astype(np.float32)

    @over(4, (split, P(AXIS), P(AXIS)), (P(AXIS), split))
    def function(part, numbers, factors):
        def loss(part):
            rows = gather_rows(part, split, numbers)
            return jnp.sum(rows * factors), rows

        gradient, rows = jax.grad(loss, has_aux=True)(part)
        return rows, gradient

    rows, gradient = function(table, numbers, factors)
    np.testing.assert_array_equal(rows, table[numbers])
    expected = np.zeros_like(table)
    np.add.at(expected, numbers, factors)
    np.testing.assert_array_equal(gradient, expected)


def test_rows_are_exchanged_where_they_are_a_quarter_of_the_table():
    for rows, split, numbers, devices, expected in (
        (30522, P(None, AXIS), 256, 8, True),  # BERT, 8 sentences of 32 tokens on each device
        (30522, P(None, AXIS), 7630, 8, True),
        (30522, P(None, AXIS), 7631, 8, False),
        (30522, P(AXIS), 256, 2, True),
        (50368, P(AXIS), 1574, 8, True),  # each row goes from one device to another, but all devices add it up
        (50368, P(AXIS), 1575, 8, False),
        (30522, P(), 1, 8, False),
    ):
        assert is_exchange_cheaper(rows, split, numbers, devices) == expected, (rows, split, numbers)
