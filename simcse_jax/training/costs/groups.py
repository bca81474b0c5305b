"""The devices that exchange with one another in a collective of a compiled program; the axes of a torus they use."""

import math
import re
from collections.abc import Sequence

import numpy as np


def first_group(attributes: str, devices: int) -> tuple[int, ...]:
    """The first of a collective's groups of devices, which all have one size.

    They are listed, or counted in an order of axes (`[4,2]<=[2,4]T(1,0)`), or the axes of a mesh are named.

    Args:
      attributes: of its instruction.
      devices: of the program; without groups it is for all of them.
    """
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return tuple(map(int, listed[1].split(",")))
    if counted := re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", attributes):
        sizes = [int(size) for size in counted[3].split(",")]
        order = [int(axis) for axis in counted[4].split(",")] if counted[4] else range(len(sizes))
        return tuple(np.arange(math.prod(sizes)).reshape(sizes).transpose(order).ravel()[: int(counted[2])].tolist())
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}", attributes):
        named = {axis: int(size) for axis, size in re.findall(r"'(\w+)'=(\d+)", mesh[1])}
        along = set(re.findall(r"'(\w+)'", mesh[2]))
        numbers = np.arange(math.prod(named.values())).reshape(list(named.values()))
        return tuple(numbers[tuple(slice(None) if axis in along else 0 for axis in named)].ravel().tolist())
    return tuple(range(devices))


def axes_of(group: Sequence[int], places: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The axes of a torus in which a group's devices differ; none if their places are not known."""
    along = zip(*(places[device] for device in group), strict=True) if places else ()
    return tuple(axis for axis, where in enumerate(along) if len(set(where)) > 1)
