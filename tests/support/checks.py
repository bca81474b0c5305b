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
    """Value and gradients of `loss`, or of each in a dictionary, on several devices are those of all rows on one.

    loss(rows, shared, own, gather, psum) is the loss of the global batch, a scalar. `rows` are arrays whose first axis
    is split, `shared` arrays that every device has; `own` is the global number of each row.
    """
    losses = loss if isinstance(loss, dict) else {"": loss}

    def value_and_gradients(gather, psum, spread):
        def compute(rows, shared, own):
            return {
                name: jax.value_and_grad(lambda *x, loss=loss: loss(x[0], spread(x[1]), own, gather, psum), (0, 1))(
                    rows, shared
                )
                for name, loss in losses.items()
            }

        return compute

    rows, shared = jax.tree.map(jnp.asarray, (rows, shared))
    own = jnp.arange(len(jax.tree.leaves(rows)[0]))
    whole = jax.jit(value_and_gradients(*[lambda x: x] * 3))(rows, shared, own)
    for name, found in whole.items():
        depends = [np.abs(part).max() > 1e-6 for part in jax.tree.leaves(found[1])]
        assert abs(found[0]) > 1e-6 and (any(depends) if name else all(depends)), name
    function = value_and_gradients(
        lambda x: jax.lax.all_gather(x, AXIS, tiled=True),
        lambda x: jax.lax.psum(x, AXIS),
        lambda x: jax.lax.pcast(x, AXIS, to="varying"),
    )
    specs = {"in_specs": (P(AXIS), P(), P(AXIS)), "out_specs": dict.fromkeys(losses, (P(), (P(AXIS), P())))}
    for count in devices:
        found = jax.jit(jax.shard_map(function, mesh=data_mesh(jax.devices()[:count]), **specs))(rows, shared, own)
        for name, expected in whole.items():
            for ours, theirs in zip(jax.tree.leaves(found[name]), jax.tree.leaves(expected), strict=True):
                close = {"rtol": 1e-5, "atol": 1e-5 * np.abs(theirs).max()}
                np.testing.assert_allclose(ours, theirs, err_msg=name, **close)
