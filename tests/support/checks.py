"""Checks for every objective: the same numbers on any number of devices."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.mesh import AXIS, data_mesh


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def cosine(a, b):
    return a @ b / np.sqrt(a @ a * (b @ b))


def assert_sharded_is_whole(loss, rows, shared=(), devices=(4,)):
    """Value and gradients of `loss` over several devices equal those of all rows on one device.

    loss(rows, shared, own, gather, psum) is the loss of the global batch, a scalar. `rows` are arrays whose first axis
    is split, `shared` arrays that every device has; `own` is the global number of each row.
    """

    def value_and_gradients(gather, psum, spread):
        def total(rows, shared, own):
            return loss(rows, spread(shared), own, gather, psum)

        return jax.value_and_grad(total, argnums=(0, 1))

    rows, shared = jax.tree.map(jnp.asarray, (rows, shared))
    own = jnp.arange(len(jax.tree.leaves(rows)[0]))
    whole = jax.jit(value_and_gradients(*[lambda x: x] * 3))(rows, shared, own)
    assert all(np.abs(part).max() > 1e-6 for part in jax.tree.leaves(whole))
    for count in devices:
        function = value_and_gradients(
            lambda x: jax.lax.all_gather(x, AXIS, tiled=True),
            lambda x: jax.lax.psum(x, AXIS),
            lambda x: jax.lax.pcast(x, AXIS, to="varying"),
        )
        specs = {"in_specs": (P(AXIS), P(), P(AXIS)), "out_specs": (P(), (P(AXIS), P()))}
        function = jax.shard_map(function, mesh=data_mesh(jax.devices()[:count]), **specs)
        found = jax.jit(function)(rows, shared, own)
        for ours, expected in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
