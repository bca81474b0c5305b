"""The state of a run, split over the devices: each keeps and updates a part of the parameters and of the moments.

An array is split along its longest axis that the devices divide, or not at all; so its name and its shape stay, and a
checkpoint is the same on any number of devices. A step gathers the parameters, and sums each part's gradient where the
part is (Rajbhandari et al. 2020, arXiv:1910.02054, ZeRO's first two stages and the parameters' float32 copies).
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from simcse_jax.devices.mesh import AXIS, Way, replicated


def spec(shape: Sequence[int], devices: int) -> P:
    """How an array is split over devices: along the longest axis that their number divides, the first one of equals."""
    axes = [axis for axis, size in enumerate(shape) if size and size % devices == 0]
    if devices == 1 or not axes:
        return P()
    longest = max(axes, key=lambda axis: shape[axis])
    return P(*[None] * longest, AXIS)


def shardings(tree: Any, mesh: Mesh, runs: bool = False) -> Any:
    """The sharding of each array of a state; with `runs` their first axis is one of runs, which stays whole."""

    def of(array: Any) -> NamedSharding:
        shape = np.shape(array)
        split = spec(shape[1:], mesh.size) if runs else spec(shape, mesh.size)
        return NamedSharding(mesh, P(None, *split) if runs and split else split)

    return jax.tree.map(of, tree)


def distribute(tree: Any, mesh: Mesh, runs: bool = False) -> Any:
    """The arrays of a state on the devices of all processes; each process must pass the same values."""

    def on_devices(value: Any, sharding: NamedSharding) -> jax.Array:
        array = np.asarray(value)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(on_devices, tree, shardings(tree, mesh, runs))


def divide(tree: Any, wanted: Any) -> Any:
    """Splits arrays that are whole on every device by `wanted`: each device keeps its parts, and sends nothing."""
    return jax.jit(lambda tree: tree, out_shardings=wanted)(tree)


def constrain(tree: Any, mesh: Mesh, runs: bool = False) -> Any:
    """While a program is traced: the state that it computes is split like the one that it takes."""
    return jax.lax.with_sharding_constraint(tree, shardings(tree, mesh, runs))


def whole(tree: Any, mesh: Mesh) -> Any:
    """The arrays on every device, for scoring; all processes must call it."""
    return tree if mesh.size == 1 else _copy(tree, mesh)


@functools.partial(jax.jit, static_argnums=1)
def _copy(tree: Any, mesh: Mesh) -> Any:
    return jax.lax.with_sharding_constraint(tree, replicated(mesh))


def gather(part: Float[Array, "..."], split: P, dtype: jnp.dtype, way: Way) -> Float[Array, "..."]:
    """Within `shard_map`: the whole array, rounded to `dtype` on its way; its gradient is summed in float32.

    JAX's own rule would sum the gradient in `dtype`. What is not split is made device-varying; its gradient is summed
    over the devices.
    """
    if AXIS not in split:
        return jax.lax.pcast(part, AXIS, to="varying")
    return _gather(split.index(AXIS), dtype, way, part)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _gather(axis: int, dtype: jnp.dtype, way: Way, part: Float[Array, "..."]) -> Float[Array, "..."]:
    array = part.astype(dtype)
    if len(way.order) == 1:  # with an axis that is merged afterwards, XLA for CPUs fuses, and rounds, otherwise
        return jax.lax.all_gather(array, AXIS, axis=axis, tiled=True).astype(part.dtype)
    for number, side in reversed(list(enumerate(way.order))):
        place = sum(gathered < side for gathered in way.order[number + 1 :])  # among the sides that are there
        array = jax.lax.all_gather(array, AXIS, axis=axis + place, axis_index_groups=way.groups(side))
    before, after = part.shape[:axis], part.shape[axis + 1 :]
    return array.reshape(*before, -1, *after).astype(part.dtype)


def _forward(axis: int, dtype: jnp.dtype, way: Way, part: Float[Array, "..."]) -> tuple[Float[Array, "..."], None]:
    return _gather(axis, dtype, way, part), None


def _backward(
    axis: int, dtype: jnp.dtype, way: Way, _: None, gradient: Float[Array, "..."]
) -> tuple[Float[Array, "..."]]:
    return (_summed_part(gradient, axis, way),)


def _summed_part(gradient: Float[Array, "..."], axis: int, way: Way) -> Float[Array, "..."]:
    """This device's part of the sum over the devices.

    The parts come first, those of the first side before those of the next: along another axis, XLA for TPUs sums the
    whole of a word embedding's gradient everywhere.
    """
    before, size, after = gradient.shape[:axis], gradient.shape[axis], gradient.shape[axis + 1 :]
    parts = gradient.reshape(*before, *way.sides, size // math.prod(way.sides), *after)
    parts = jnp.moveaxis(parts, [axis + side for side in way.order], range(len(way.order)))
    for side in way.order:
        parts = jax.lax.psum_scatter(parts, AXIS, scatter_dimension=0, axis_index_groups=way.groups(side))
    return parts


_gather.defvjp(_forward, _backward)


def sends_rows(rows: int, split: P, numbers: int, devices: int) -> bool:
    """Whether `rows_of` sends at most a quarter of what `gather` does, for the same gradient.

    A quarter, because every device has something else for every other one, and over a large torus that takes several
    links.

    Args:
      numbers: of the rows that each device needs.
    """
    return AXIS in split and 4 * numbers * (devices if split[0] == AXIS else 1) <= rows


def rows_of(part: Float[Array, "..."], split: P, numbers: Int[Array, " N"]) -> Float[Array, "N D"]:
    """Within `shard_map`: the rows of a table that this device needs, bit for bit; nothing else of it is sent.

    All devices get the numbers of all rows that are needed, and each sends of its part what the others need. Gradients
    go back in the same way, and are added up, in float32, where the part is.

    Args:
      numbers: of the rows in the whole table, other ones on each device; a row may occur several times.
    """
    everywhere = jax.lax.all_gather(numbers, AXIS, tiled=True)
    if split[0] != AXIS:
        return jax.lax.all_to_all(jnp.take(part, everywhere, axis=0), AXIS, split_axis=0, concat_axis=1, tiled=True)
    place = everywhere - jax.lax.axis_index(AXIS) * len(part)
    outside = (place < 0) | (place >= len(part))
    own = jnp.take(part, jnp.where(outside, len(part), place), axis=0, mode="fill", fill_value=0)
    return jax.lax.psum_scatter(own, AXIS, scatter_dimension=0, tiled=True)
