"""The state of a run, split over the devices: each keeps and updates a part of the parameters and of the moments.

An array is split along its longest axis that the devices divide, or not at all; so its name and its shape stay, and a
checkpoint is the same on any number of devices. Parameters are gathered, and each part's gradient is summed where the
part is (Rajbhandari et al. 2020, arXiv:1910.02054, ZeRO): all at a step's beginning (the first two stages and the
parameters' float32 copies), or each where it is read (the third). With several copies of the state (`mesh.COPIES`) a
gradient is then summed over these.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from simcse_jax.devices.mesh import AXIS, replicated_sharding


def spec(shape: Sequence[int], devices: int) -> P:
    """How an array is split over devices: along the longest axis that their number divides, the first one of equals."""
    axes = [axis for axis, size in enumerate(shape) if size and size % devices == 0]
    if devices == 1 or not axes:
        return P()
    longest = max(axes, key=lambda axis: shape[axis])
    return P(*[None] * longest, AXIS)


def shardings(tree: Any, mesh: Mesh) -> Any:
    """The sharding of each array of a state."""

    def of(array: Any) -> NamedSharding:
        return NamedSharding(mesh, spec(np.shape(array), mesh.shape[AXIS]))

    return jax.tree.map(of, tree)


def distribute(tree: Any, mesh: Mesh) -> Any:
    """The arrays of a state on the devices of all processes; each process must pass the same values."""

    def on_devices(value: Any, sharding: NamedSharding) -> jax.Array:
        array = np.asarray(value)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(on_devices, tree, shardings(tree, mesh))


def divide(tree: Any, wanted: Any) -> Any:
    """Splits arrays that are whole on every device by `wanted`: each device keeps its parts, and sends nothing."""
    return jax.jit(lambda tree: tree, out_shardings=wanted)(tree)


def constrain(tree: Any, mesh: Mesh) -> Any:
    """While a program is traced: the state that it computes is split like the one that it takes."""
    return jax.lax.with_sharding_constraint(tree, shardings(tree, mesh))


def replicate_whole(tree: Any, mesh: Mesh) -> Any:
    """The arrays on every device, for scoring; all processes must call it."""
    return tree if mesh.size == 1 else _copy(tree, mesh)


@functools.partial(jax.jit, static_argnums=1)
def _copy(tree: Any, mesh: Mesh) -> Any:
    return jax.lax.with_sharding_constraint(tree, replicated_sharding(mesh))


def spread(part: Float[Array, "..."], split: P, mesh: Mesh) -> Float[Array, "..."]:
    """Within `shard_map`: what a device keeps of an array, device-varying; its gradient is summed over the copies.

    Cast once, before all that reads it. Otherwise JAX casts at every use, and sums the gradient over the devices each
    time (with chunks, in every iteration of the scan).
    """
    unsplit = tuple(axis for axis in mesh.axis_names if axis not in split)
    return jax.lax.pcast(part, unsplit, to="varying") if unsplit else part


def gather(part: Float[Array, "..."], split: P, dtype: jnp.dtype) -> Float[Array, "..."]:
    """Within `shard_map`: the whole array of `spread` parts, rounded to `dtype` on its way; see `gather_rounded`."""
    return gather_rounded(rounded(part, dtype), part, split) if AXIS in split else part


def rounded(part: Float[Array, "..."], dtype: jnp.dtype) -> Float[Array, "..."]:
    """A part in the type in which it is sent, without gradient."""
    return jax.lax.stop_gradient(part.astype(dtype))


def gather_rounded(sent: Float[Array, "..."], part: Float[Array, "..."], split: P) -> Float[Array, "..."]:
    """Within `shard_map`: the whole array of what the devices send of their `spread` parts (`rounded`).

    Its gradient is the part's, summed in float32, where JAX's own rule would sum it in the type that is sent. Of the
    part itself nothing is read.
    """
    return _gather(split.index(AXIS) if AXIS in split else None, sent, part)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gather(axis: int | None, array: Float[Array, "..."], part: Float[Array, "..."]) -> Float[Array, "..."]:
    if axis is None:
        return array.astype(part.dtype)
    return jax.lax.all_gather(array, AXIS, axis=axis, tiled=True).astype(part.dtype)


def _sum_part(axis: int | None, _: None, gradient: Float[Array, "..."]) -> tuple[None, Float[Array, "..."]]:
    """This device's part of the sum over the devices.

    The parts come first: along another axis, XLA for TPUs sums the whole of a word embedding's gradient everywhere.
    """
    if axis is None:
        return None, gradient
    devices = jax.lax.axis_size(AXIS)
    before, size, after = gradient.shape[:axis], gradient.shape[axis], gradient.shape[axis + 1 :]
    parts = jnp.moveaxis(gradient.reshape(*before, devices, size // devices, *after), axis, 0)
    return None, jax.lax.psum_scatter(parts, AXIS, scatter_dimension=0)


_gather.defvjp(lambda axis, array, part: (_gather(axis, array, part), None), _sum_part)


def is_exchange_cheaper(rows: int, split: P, numbers: int, devices: int) -> bool:
    """Whether `gather_rows` sends at most a quarter of what `gather` does, for so many `numbers` of rows of a device.

    A quarter, because every device has something else for every other one, which may take several links.
    """
    return AXIS in split and 4 * numbers * (devices if split[0] == AXIS else 1) <= rows


def gather_rows(part: Float[Array, "..."], split: P, numbers: Int[Array, " N"]) -> Float[Array, "N D"]:
    """Within `shard_map`: the rows of a table that this device needs, bit for bit; nothing else of it is sent.

    Devices that share a copy get the numbers of all rows that they need, and each sends of its part what the others
    need. Gradients go back in the same way, and are added up, in float32, where the part is. `numbers` are those of
    the rows in the whole table, other ones on each device; a row may occur several times.
    """
    everywhere = jax.lax.all_gather(numbers, AXIS, tiled=True)
    if split[0] != AXIS:
        return jax.lax.all_to_all(jnp.take(part, everywhere, axis=0), AXIS, split_axis=0, concat_axis=1, tiled=True)
    place = everywhere - jax.lax.axis_index(AXIS) * len(part)
    outside = (place < 0) | (place >= len(part))
    summands = jnp.take(part, jnp.where(outside, len(part), place), axis=0, mode="fill", fill_value=0)
    return jax.lax.psum_scatter(summands, AXIS, scatter_dimension=0, tiled=True)
