from types import SimpleNamespace

import jax
import numpy as np
import pytest

from simcse_jax.devices import torus
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.devices.torus import SMALL, Way, sides, ways


def chips(*lengths, slice_index=0):
    """As on a TPU: a flat torus, too, has chips with three coordinates; not row by row."""
    places = np.ndindex(*(*lengths, 1, 1)[:3])
    return [SimpleNamespace(platform="tpu", coords=list(place), slice_index=slice_index) for place in places][::-1]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((1,), (1,)),
        ((8,), (8,)),
        ((2, 2), (4,)),
        ((2, 4), (8,)),
        ((4, 4), (4, 4)),
        ((4, 8), (32,)),
        ((2, 2, 2), (2, 2, 2)),
        ((1, 4, 4), (4, 4)),
        ((2, 4, 4), (2, 4, 4)),
    ],
)
def test_a_torus_with_several_ways_has_the_sides_of_its_chips(lengths, expected):
    assert sides(chips(*lengths)) == expected


def test_what_is_no_whole_torus_has_one_side():
    assert sides(jax.devices()[:4]) == (4,)
    assert sides(chips(4, 4)[1:]) == (15,)
    assert sides(chips(4, 4) + chips(4, 4)) == (32,)  # two cores a chip
    assert sides(chips(4, 4) + chips(4, 4, slice_index=1)) == (32,)
    gpus = [SimpleNamespace(platform="cuda", coords=chip.coords) for chip in chips(4, 4)]
    assert sides(gpus) == (16,)


def test_chips_of_a_torus_are_counted_row_by_row(monkeypatch):
    order = (2, 0, 1, 3)
    monkeypatch.setattr("simcse_jax.devices.mesh.sides", lambda devices: (2, 2))
    monkeypatch.setattr("simcse_jax.devices.mesh.coordinates", lambda device: (order[device.id],))
    assert [device.id for device in data_mesh(jax.devices()[:4]).devices] == [1, 2, 0, 3]


def test_the_groups_of_an_axis_are_rows_or_columns():
    way = Way((2, 3), (0, 1))
    assert way.groups(0) == [[0, 3], [1, 4], [2, 5]]
    assert way.groups(1) == [[0, 1, 2], [3, 4, 5]]
    assert Way((2, 2, 2), (2, 0, 1)).groups(1) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert Way((4,), (0,)).groups(0) is None


def test_the_first_axis_gets_most_and_all_axes_together_the_share_of_the_others():
    first = Way((4, 8), (1, 0))
    assert (first.share(1), first.share(0)) == (7 / 8, 3 / 4 / 8)
    for way in (first, Way((4, 8), (0, 1)), Way((32,), (0,))):
        assert sum(map(way.share, way.order)) == 31 / 32


@pytest.mark.parametrize("lengths", [(4, 4), (4, 8), (2, 4, 4), (8, 8)])
def test_the_arrays_share_the_links_of_all_axes(lengths, monkeypatch):
    monkeypatch.setattr(torus, "sides", lambda devices: lengths)
    sizes = {"words": 40 * SMALL, **{f"kernel {number}": 4 * SMALL for number in range(40)}, "bias": SMALL - 1}
    chosen = ways(sizes, data_mesh(jax.devices()[:2]))
    assert chosen.pop("bias") == Way((2,), (0,))  # to all at once
    sent = [sum(sizes[name] * way.share(axis) for name, way in chosen.items()) for axis in range(len(lengths))]
    assert max(sent) <= 1.05 * sum(sent) / len(sent)
    assert {way.sides for way in chosen.values()} == {lengths}


def test_there_is_one_way_over_devices_that_are_no_torus():
    found = ways({"words": 2 * SMALL, "bias": 1}, data_mesh(jax.devices()[:4]))
    assert found == dict.fromkeys(("words", "bias"), Way((4,), (0,)))
