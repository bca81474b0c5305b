from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.devices import mesh as module
from simcse_jax.devices.mesh import (
    SMALL,
    SumOrder,
    choose_ways,
    compile_by_rows,
    data_mesh,
    place,
    replicate,
    replicated_sharding,
    torus_sides,
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


def chips(*lengths, slice_index=0):
    """As on a TPU: a flat torus, too, has chips with three coordinates; not row by row."""
    places = np.ndindex(*(*lengths, 1, 1)[:3])
    return [SimpleNamespace(platform="tpu", coords=list(place), slice_index=slice_index) for place in places][::-1]


def test_a_torus_with_several_ways_has_the_sides_of_its_chips_and_what_is_no_whole_torus_one_side():
    for lengths in ((4, 4), (2, 2, 2), (2, 4, 4)):
        assert torus_sides(chips(*lengths)) == lengths
    assert torus_sides(chips(1, 4, 4)) == (4, 4)
    for lengths in ((1,), (8,), (2, 2), (2, 4), (4, 8)):
        assert torus_sides(chips(*lengths)) == (np.prod(lengths),)
    assert torus_sides(jax.devices()[:4]) == (4,)
    assert torus_sides(chips(4, 4)[1:]) == (15,)
    assert torus_sides(chips(4, 4) + chips(4, 4)) == (32,)  # two cores a chip
    assert torus_sides(chips(4, 4) + chips(4, 4, slice_index=1)) == (32,)
    gpus = [SimpleNamespace(platform="cuda", coords=chip.coords) for chip in chips(4, 4)]
    assert torus_sides(gpus) == (16,)


def test_chips_of_a_torus_are_counted_row_by_row_and_the_groups_of_an_axis_are_rows_or_columns(monkeypatch):
    order = (2, 0, 1, 3)
    monkeypatch.setattr(module, "torus_sides", lambda devices: (2, 2))
    monkeypatch.setattr(module, "coordinates", lambda device: (order[device.id],))
    assert [device.id for device in data_mesh(jax.devices()[:4]).devices] == [1, 2, 0, 3]
    way = SumOrder((2, 3), (0, 1))
    assert way.groups(0) == [[0, 3], [1, 4], [2, 5]]
    assert way.groups(1) == [[0, 1, 2], [3, 4, 5]]
    assert SumOrder((2, 2, 2), (2, 0, 1)).groups(1) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert SumOrder((4,), (0,)).groups(0) is None
    # The first axis gets most, and all axes together the share of the others.
    first = SumOrder((4, 8), (1, 0))
    assert (first.share(1), first.share(0)) == (7 / 8, 3 / 4 / 8)
    for way in (first, SumOrder((4, 8), (0, 1)), SumOrder((32,), (0,))):
        assert sum(map(way.share, way.order)) == 31 / 32


def test_the_arrays_share_the_links_of_all_axes_and_have_one_way_over_devices_that_are_no_torus(monkeypatch):
    found = choose_ways({"words": 2 * SMALL, "bias": 1}, data_mesh(jax.devices()[:4]))
    assert found == dict.fromkeys(("words", "bias"), SumOrder((4,), (0,)))
    sizes = {"words": 40 * SMALL, **{f"kernel {number}": 4 * SMALL for number in range(40)}, "bias": SMALL - 1}
    for lengths in ((4, 4), (4, 8), (2, 4, 4), (8, 8)):
        monkeypatch.setattr(module, "torus_sides", lambda devices, lengths=lengths: lengths)
        chosen = choose_ways(sizes, data_mesh(jax.devices()[:2]))
        assert chosen.pop("bias") == SumOrder((2,), (0,))  # to all at once
        sent = [sum(sizes[name] * way.share(axis) for name, way in chosen.items()) for axis in range(len(lengths))]
        assert max(sent) <= 1.05 * sum(sent) / len(sent)
        assert {way.sides for way in chosen.values()} == {lengths}
