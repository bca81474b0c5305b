"""The mesh of devices over which a batch is split; arrays placed on it and fetched from it."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.torus import coordinates, sides

AXIS = "data"


def data_mesh(devices: list[jax.Device]) -> Mesh:
    """The one-dimensional mesh over which a batch is split; chips of a torus with several ways go row by row."""
    kind = (jax.sharding.AxisType.Auto,)
    if len(sides(devices)) > 1:
        return Mesh(np.array(sorted(devices, key=coordinates)), (AXIS,), axis_types=kind)
    return jax.make_mesh((len(devices),), (AXIS,), axis_types=kind, devices=devices)


def replicated(mesh: Mesh) -> NamedSharding:
    """The same array on every device."""
    return NamedSharding(mesh, P())


def split_over_examples(mesh: Mesh) -> NamedSharding:
    """The first axis split over the devices."""
    return NamedSharding(mesh, P(AXIS))


def by_rows(function: Callable[..., jax.Array], sharding: NamedSharding | None) -> jax.stages.Wrapped:
    """function(parameters, *arrays), compiled, of arrays whose first axis is split over the devices, as its result's.

    Each device computes its own rows, so kernels that the compiler cannot split may be among it; a row must not depend
    on others.

    Args:
      function: gives an array of as many rows as it takes.
      sharding: of the rows; None: a single device has all.
    """
    if sharding is None or sharding.mesh.size == 1:
        return jax.jit(function, out_shardings=sharding)

    def of_all(params: Any, *arrays: jax.Array) -> jax.Array:
        specs = (P(), *[sharding.spec] * len(arrays))
        # Nothing is summed over the devices, so there is nothing to check.
        own = jax.shard_map(function, mesh=sharding.mesh, in_specs=specs, out_specs=sharding.spec, check_vma=False)
        return own(params, *arrays)

    return jax.jit(of_all, out_shardings=sharding)


def fetch(array: jax.Array) -> np.ndarray:
    """The whole array, in every process; all of them must call it if it is split over their devices."""
    if array.is_fully_addressable:
        return np.asarray(array)
    return multihost_utils.process_allgather(array, tiled=True)


def place(read: Callable[[slice], Any], rows: int, sharding: NamedSharding) -> Any:
    """Arrays split by rows over the devices of all processes; each process reads its own rows only.

    Args:
      read: takes a slice of the rows and returns a pytree of NumPy arrays with them.
      rows: their number in all processes.
      sharding: how the first axis is split.
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
