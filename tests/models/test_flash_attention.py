import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.mesh import AXIS, data_mesh
from simcse_jax.models import flash_attention as kernels
from simcse_jax.models.attention import whole
from simcse_jax.models.flash_attention import Walk, flash_attention

LENGTHS = (150, 40, 1)  # of the texts, in tokens
T = 150  # so the last block has padding of its own


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """The kernels' steps one by one, on a CPU."""
    monkeypatch.setattr(kernels.pl, "pallas_call", functools.partial(pl.pallas_call, interpret=True))
    # Several outer and inner blocks of so few tokens.
    monkeypatch.setattr(kernels, "BLOCKS", (64,))
    monkeypatch.setattr(kernels, "LANES", 16)


def factors(size, dtype, rows=3):
    generator = np.random.default_rng(0)
    made = [jnp.asarray(generator.standard_normal((rows, 2, T, size)), dtype) for _ in range(3)]
    mask = jnp.arange(T)[None] < jnp.array([LENGTHS[row % 3] for row in range(rows)])[:, None]
    return *made, mask.astype(jnp.int32)


def loss(attention, query, key, value, mask):
    """A number that depends on the tokens' contexts alone, and all contexts."""
    found = attention(query, key, value, mask)
    weights = jnp.cos(jnp.arange(found.shape[-1])) * mask[:, None, :, None]
    return jnp.sum(jnp.sin(found.astype(jnp.float32)) * weights), found


def within(reach, length):
    """(Q, K): which keys are within reach of which queries."""
    before, after = (length if most is None else most for most in reach)
    distance = np.arange(length)[:, None] - np.arange(length)
    return (distance <= before) & (distance >= -after)


def plain(reach, dtype):
    near = jnp.asarray(within(reach, T))[None]
    return lambda query, key, value, mask: whole(query, key, value, mask, None, near, None, dtype)


def differences(found, expected):
    """Of each array of a pair of trees, the largest difference in parts of the largest number."""
    both = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    pairs = [(np.asarray(one, np.float32), np.asarray(other, np.float32)) for one, other in both]
    return [np.abs(one - other).max() / np.abs(other).max() for one, other in pairs]


CASES = [(32, (None, None), "float32"), (64, (1, 1), "bfloat16"), (32, (40, 0), "bfloat16"), (32, (3, 70), "float32")]
MORE = [(64, (40, 40), "float32"), (32, (200, 200), "bfloat16"), (64, (None, 0), "float32")]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("size", "reach", "dtype"), [*CASES, *(pytest.param(*x, marks=pytest.mark.slow) for x in MORE)]
)
def test_values_and_gradients_are_those_of_all_scores_at_once(reach, size, dtype):
    dtype = jnp.dtype(dtype)
    *three, mask = factors(size, dtype)
    tokens, own = mask[:, None, :, None], functools.partial(flash_attention, before=reach[0], after=reach[1])
    both = [jax.grad(functools.partial(loss, each), (0, 1, 2), has_aux=True) for each in (own, plain(reach, dtype))]
    with jax.default_matmul_precision("highest"):
        (gradients, found), (expected_gradients, expected) = (jax.jit(each)(*three, mask) for each in both)
    assert found.dtype == dtype and all(bool(jnp.isfinite(x).all()) for x in (found, *gradients))
    most = 3e-6 if dtype == jnp.float32 else 0.02
    assert max(differences((found * tokens, gradients), (expected * tokens, expected_gradients))) < most
    for each in gradients[1:]:  # padding gets nothing
        assert not np.any(np.asarray(each * (1 - tokens), np.float32))


def test_a_text_of_padding_alone_gives_zeros_and_several_runs_at_once_what_each_gives():
    *three, mask = factors(32, jnp.float32)
    nothing = mask.at[1].set(0)

    def total(*three):
        found = flash_attention(*three, nothing)
        return jnp.sum(found**2), found

    gradients, found = jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(*three)
    assert not np.any(found[1])
    assert all(bool(jnp.isfinite(x).all()) and not np.any(x[1]) for x in gradients)
    *three, mask = factors(32, jnp.float32)
    own = jax.jit(jax.grad(lambda *x: jnp.sum(jnp.sin(flash_attention(*x, mask, 20, 20))), (0, 1, 2)))
    runs = [jnp.stack([x, 2 * x]) for x in three]
    expected = [jnp.stack(each) for each in zip(own(*three), own(*(2 * x for x in three)), strict=True)]
    assert max(differences(jax.jit(jax.vmap(own))(*runs), expected)) < 1e-5


@pytest.mark.exact
@pytest.mark.optimized
def test_several_devices_give_what_one_gives():
    *three, mask = factors(32, jnp.float32, rows=4)
    mesh = data_mesh(jax.devices()[:4])
    own = functools.partial(loss, functools.partial(flash_attention, before=20, after=20))

    def of_part(query, key, value, mask):
        (value, _), gradients = jax.value_and_grad(own, (0, 1, 2), has_aux=True)(query, key, value, mask)
        return jax.lax.psum(value, AXIS), gradients

    rows = P(AXIS)
    on_all = jax.jit(jax.shard_map(of_part, mesh=mesh, in_specs=(rows,) * 4, out_specs=(P(), rows)))
    (expected, _), gradients = jax.jit(jax.value_and_grad(own, (0, 1, 2), has_aux=True))(*three, mask)
    assert max(differences(on_all(*three, mask), (expected, gradients))) < 1e-6


REACHES = [(None, None), (None, 0), (0, None), (17, None), (1000, 1000), (17, 0), (0, 40)]
REACHES += [(most, most) for most in (0, 16, 17, 100)]


@pytest.mark.parametrize("reach", REACHES)
def test_every_pair_that_sees_each_other_is_met_once_and_no_block_without_one(reach):
    walk = Walk(512, 64, 16, *reach)
    met = np.zeros((512, 512), int)
    outer, inner = walk.grid
    close = within(reach, 512)
    for i in range(outer):
        for block in [int(walk.handed(i, j)) for j in range(inner)]:
            if walk.meets(i, block):
                own = slice(i * 64, (i + 1) * 64), slice(block * 16, (block + 1) * 16)
                met[own] += 1
                assert close[own].any()
        assert {int(walk.read(i, j)) for j in range(inner)} == {*np.flatnonzero(met[i * 64, ::16]).tolist()}
    assert (met[close] == 1).all() and met.max() == 1
    assert reach != (16, 16) or inner == 6  # of 32
    assert walk.mirrored.mirrored == walk and walk.mirrored.before == walk.after
