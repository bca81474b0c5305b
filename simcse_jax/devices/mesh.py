"""The mesh of devices over which a batch is split; arrays placed on it and fetched from it; the torus of TPU chips.

Where XLA finds a ring through all chips, it sums parts where they are kept. Over a square of chips, or in three
dimensions, it sums everything everywhere, which sends twice the bytes; so there a sum goes along the first axis, then a
part of it along the next one. Each axis has links of its own: arrays take their axes in different orders, so that none
of the links waits for the others.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# The state and the rows of a batch are split over `AXIS`. Where devices have several copies of the state, these are
# along `COPIES`, and rows are split over both.
AXIS, COPIES = "model", "data"
SMALL = 2**16  # numbers: of smaller arrays the bytes do not matter, but each exchange takes its time


def data_mesh(devices: list[jax.Device], parts: int = 0) -> Mesh:
    """The mesh over which a batch is split: copies of the parameters, and the devices that share each of them.

    Chips of a torus with several ways go row by row.

    Args:
      parts: the number of devices that share a copy, which divides that of all; 0: all.
    """
    kind = (jax.sharding.AxisType.Auto,)
    if len(torus_sides(devices)) > 1:
        mesh = Mesh(np.array(sorted(devices, key=coordinates)), (AXIS,), axis_types=kind)
    else:
        mesh = jax.make_mesh((len(devices),), (AXIS,), axis_types=kind, devices=devices)
    if parts in (0, len(devices)):
        return mesh
    return Mesh(mesh.devices.reshape(-1, parts), (COPIES, AXIS), axis_types=kind * 2)


def row_axes(mesh: Mesh) -> str | tuple[str, ...]:
    """The axes over which the rows of a batch are split."""
    return (COPIES, AXIS) if COPIES in mesh.axis_names else AXIS


def replicated_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding of arrays that every device has whole."""
    return NamedSharding(mesh, P())


def split_over_examples(mesh: Mesh) -> NamedSharding:
    """The first axis split over the devices."""
    return NamedSharding(mesh, P(row_axes(mesh)))


def compile_by_rows(function: Callable[..., jax.Array], sharding: NamedSharding | None) -> jax.stages.Wrapped:
    """Compiles function(parameters, *arrays) for arrays and a result whose first axis is split over the devices.

    Each device computes its own rows, so the function may use kernels that the compiler cannot split; a row must not
    depend on others.

    Args:
      function: gives an array of as many rows as it takes.
      sharding: of the rows; None: a single device has all.
    """
    if sharding is None or sharding.mesh.size == 1:
        return jax.jit(function, out_shardings=sharding)

    def compute(params: Any, *arrays: jax.Array) -> jax.Array:
        specs = (P(), *[sharding.spec] * len(arrays))
        # Nothing is summed over the devices, so there is nothing to check.
        sharded = jax.shard_map(function, mesh=sharding.mesh, in_specs=specs, out_specs=sharding.spec, check_vma=False)
        return sharded(params, *arrays)

    return jax.jit(compute, out_shardings=sharding)


def fetch(array: jax.Array) -> np.ndarray:
    """The whole array, in every process; all of them must call it if it is split over their devices."""
    if array.is_fully_addressable:
        return np.asarray(array)
    return multihost_utils.process_allgather(array, tiled=True)


def place(read: Callable[[slice], Any], rows: int, sharding: NamedSharding) -> Any:
    """Arrays split by rows over the devices of all processes; each process reads its own rows only.

    Args:
      read: takes a slice of the rows and returns a pytree of NumPy arrays with them.
    """
    places = sharding.addressable_devices_indices_map((rows,))
    shards = [jax.device_put(read(index[0]), device) for device, index in places.items() if index is not None]

    def join(*parts: jax.Array) -> jax.Array:
        return jax.make_array_from_single_device_arrays((rows, *parts[0].shape[1:]), sharding, list(parts))

    return jax.tree.map(join, *shards)


def replicate(tree: Any, sharding: NamedSharding) -> Any:
    """The same arrays on every device of all processes; each process must pass the same values."""

    def copy(value: Any) -> jax.Array:
        copies = [jax.device_put(value, device) for device in sharding.addressable_devices]
        return jax.make_array_from_single_device_arrays(np.shape(value), sharding, copies)

    return jax.tree.map(copy, tree)


ByRows = Callable[[Callable[..., jax.Array], NamedSharding | None], jax.stages.Wrapped]  # as `compile_by_rows`


class SumOrder(NamedTuple):
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
        return (1 - 1 / self.sides[axis]) / math.prod(self.sides[other] for other in before)


def torus_sides(devices: Sequence[jax.Device]) -> tuple[int, ...]:
    """The sides of the torus that the devices fill, without those of one chip; their number if a ring goes through.

    A ring goes through two sides that differ, and through 2 × 2. Devices other than TPUs, and several slices, count as
    a ring too: how they exchange is left to XLA.
    """
    places = [coordinates(device) for device in devices]
    lengths = tuple(length for along in zip(*places, strict=True) if (length := len(set(along))) > 1)
    slices = {getattr(device, "slice_index", None) for device in devices}
    is_torus = math.prod(lengths) == len(set(places)) == len(devices) and len(slices) == 1
    if not is_torus or (len(lengths) == 2 and (lengths[0] != lengths[1] or lengths == (2, 2))):
        return (len(devices),)
    return lengths or (len(devices),)


def choose_ways(sizes: Mapping[str, int], mesh: Mesh) -> dict[str, SumOrder]:
    """A way for each array, by name, so that the links along all axes have about the same to send.

    Small arrays go to all chips at once, which XLA does for many of them together.
    """
    lengths = (mesh.shape[AXIS],) if COPIES in mesh.axis_names else torus_sides(list(mesh.devices.flat))
    starts = range(len(lengths))
    choices = [SumOrder(lengths, tuple((start + step) % len(lengths) for step in starts)) for start in starts]
    chosen = dict.fromkeys(sizes, SumOrder((mesh.shape[AXIS],), (0,)))
    sent = [0.0] * len(lengths)
    for name in sorted((name for name in sizes if sizes[name] >= SMALL), key=lambda name: (-sizes[name], name)):
        loads = [[load + sizes[name] * way.share(axis) for axis, load in enumerate(sent)] for way in choices]
        sent = min(loads, key=max)
        chosen[name] = choices[loads.index(sent)]
    return chosen


def coordinates(device: jax.Device) -> tuple[int, ...]:
    """A TPU chip's place in its torus; empty for other devices, and where JAX does not know it."""
    return tuple(getattr(device, "coords", ())) if device.platform == "tpu" else ()
