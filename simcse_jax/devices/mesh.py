"""The mesh of devices over which a batch is split; arrays placed on it and fetched from it."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# The state and the rows of a batch are split over `AXIS`. Where devices have several copies of the state, these are
# along `COPIES`, and rows are split over both.
AXIS, COPIES = "model", "data"


def data_mesh(devices: list[jax.Device], parts: int = 0) -> Mesh:
    """The mesh over which a batch is split: copies of the state, each shared by `parts` devices (0: one, by all)."""
    kind = (jax.sharding.AxisType.Auto,)
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
    depend on others. Without a sharding a single device has all rows.
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
    """Arrays split by rows over the devices of all processes; each process reads its own slices of the rows only."""
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
