"""The torus of TPU chips, and the ways on which arrays are gathered and summed over it: one of its axes at a time.

Where XLA finds a ring through all chips, it sums parts where they are kept. Over a square of chips, or in three
dimensions, it sums everything everywhere, which sends twice the bytes; so there a sum goes along the first axis, then a
part of it along the next one. Each axis has links of its own: arrays take their axes in different orders, so that none
of the links waits for the others.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
from jax.sharding import Mesh

SMALL = 2**16  # numbers: of smaller arrays the bytes do not matter, but each exchange takes its time


class Way(NamedTuple):
    """The sides of a torus, whose chips are counted row by row, and the order in which a sum goes along its axes."""

    sides: tuple[int, ...]
    order: tuple[int, ...]

    def groups(self, axis: int) -> list[list[int]] | None:
        """The chips that differ in this axis only, group by group; None if those are all of them."""
        if len(self.sides) == 1:
            return None
        after = math.prod(self.sides[axis + 1 :])
        firsts = [chip for chip in range(math.prod(self.sides)) if chip // after % self.sides[axis] == 0]
        return [[first + place * after for place in range(self.sides[axis])] for first in firsts]

    def share(self, axis: int) -> float:
        """The share of an array that each chip sends along this axis when it is summed, or gathered backwards."""
        before = self.order[: self.order.index(axis)]
        return (1 - 1 / self.sides[axis]) / math.prod(self.sides[each] for each in before)


def sides(devices: Sequence[jax.Device]) -> tuple[int, ...]:
    """The sides of the torus that the devices fill, without those of one chip; their number if a ring goes through.

    A ring goes through two sides that differ, and through 2 × 2. Devices that are no TPUs, and several slices, count as
    a ring too: how they exchange is left to XLA.
    """
    places = [coordinates(device) for device in devices]
    lengths = tuple(length for along in zip(*places, strict=True) if (length := len(set(along))) > 1)
    slices = {getattr(device, "slice_index", None) for device in devices}
    is_torus = math.prod(lengths) == len(set(places)) == len(devices) and len(slices) == 1
    if not is_torus or (len(lengths) == 2 and (lengths[0] != lengths[1] or lengths == (2, 2))):
        return (len(devices),)
    return lengths or (len(devices),)


def ways(sizes: Mapping[str, int], mesh: Mesh) -> dict[str, Way]:
    """A way for each array, by name, so that the links along all axes have about the same to send.

    Small arrays go to all chips at once, which XLA does for many of them together.
    """
    found = sides(list(mesh.devices.flat))
    starts = range(len(found))
    choices = [Way(found, tuple((start + step) % len(found) for step in starts)) for start in starts]
    chosen = dict.fromkeys(sizes, Way((mesh.size,), (0,)))
    sent = [0.0] * len(found)
    for name in sorted((name for name in sizes if sizes[name] >= SMALL), key=lambda name: (-sizes[name], name)):
        loads = [[load + sizes[name] * way.share(axis) for axis, load in enumerate(sent)] for way in choices]
        sent = min(loads, key=max)
        chosen[name] = choices[loads.index(sent)]
    return chosen


def coordinates(device: jax.Device) -> tuple[int, ...]:
    """A TPU chip's place in its torus; empty for other devices, and where JAX does not know it."""
    return tuple(getattr(device, "coords", ())) if device.platform == "tpu" else ()
