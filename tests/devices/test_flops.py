from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.flops import KINDS, PEAKS, peak, product_flops
from simcse_jax.devices.mesh import AXIS, data_mesh
from simcse_jax.training.costs.roofline import CHIPS

X, W = jnp.ones((64, 32)), jnp.ones((32, 32))
PRODUCT = 2 * 64 * 32 * 32  # FLOPs of X @ W


def flops(function, *args):
    return dict(product_flops(jax.jit(function).trace(*args).jaxpr))


def repeated(times):
    return lambda x, w: jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=times)[0]


def test_a_float32_product_takes_as_many_passes_as_its_precision_asks_for():
    """A GPU computes it by its ordinary cores, or with fewer bits."""
    mixed = lambda x, w: jax.lax.dot(x, w, preferred_element_type=jnp.float32)  # noqa: E731
    for precision, passes, on_gpu in (("highest", 6, 989 / 67), ("high", 3, 2), ("default", 1, 2), (None, 1, 2)):
        with jax.default_matmul_precision(precision):
            assert flops(jnp.matmul, X, W) == {passes: PRODUCT}
            assert flops(jnp.matmul, X.astype(jnp.bfloat16), W.astype(jnp.bfloat16)) == {1: PRODUCT}
            assert flops(mixed, X, W.astype(jnp.bfloat16)) == {(1 + passes) // 2: PRODUCT}
            traced = jax.jit(jnp.matmul).trace(X, W)
        assert product_flops(traced.jaxpr, CHIPS["h200"].passes) == {on_gpu: PRODUCT}


def test_flops_are_multiplied_by_loops_and_found_in_gradients_branches_and_checkpoints():
    batched = jnp.ones((3, 5, 64, 32))
    assert flops(lambda x: jnp.einsum("abij,abkj->abik", x, x), batched) == {1: 15 * 2 * 64 * 64 * 32}
    assert flops(repeated(5), X, W) == {1: 5 * PRODUCT}
    nested = lambda x, w: jax.lax.scan(lambda x, _: (repeated(3)(x, w), None), x, None, length=4)[0]  # noqa: E731
    assert flops(nested, X, W) == {1: 12 * PRODUCT}
    loss = lambda x, w: jnp.sum(repeated(5)(x, w))  # noqa: E731
    assert flops(jax.grad(loss, argnums=(0, 1)), X, W) == {1: 15 * PRODUCT}
    again = lambda x, w: jnp.sum(jax.checkpoint(lambda x: jnp.tanh(jnp.tanh(x @ w) @ w))(x))  # noqa: E731
    # Two forward, two again, and two for the inputs. (What the tanh of the last one needs is computed again as well.)
    assert flops(jax.grad(again), X, W) == {1: 6 * PRODUCT}
    branch = lambda x, w: jax.lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: x @ w @ w)  # noqa: E731
    assert flops(branch, X, W) == {1: 2 * PRODUCT}


@pytest.mark.platforms
def test_of_a_platform_s_branches_its_own_counts():
    function = lambda x, w: jax.lax.platform_dependent(x, w, tpu=lambda x, w: x @ w @ w, default=jnp.matmul)  # noqa: E731
    traced = jax.jit(function).trace(X, W)
    found = {name: product_flops(traced.jaxpr, platform=name).total() for name in ("", "cpu", "tpu", "cuda")}
    assert found == {"": 2 * PRODUCT, "cpu": PRODUCT, "tpu": 2 * PRODUCT, "cuda": PRODUCT}


def test_flops_under_shard_map_are_those_of_one_device_whose_peak_is_known_by_the_name_that_jax_gives_it():
    sharded = jax.shard_map(jnp.matmul, mesh=data_mesh(jax.devices()), in_specs=(P(AXIS), P()), out_specs=P(AXIS))
    assert flops(sharded, X, W) == {1: PRODUCT // 8}
    named = {kind: peak(SimpleNamespace(device_kind=kind)) for kind in (*KINDS, "NVIDIA H200 NVL")}
    assert named["TPU v5 lite"] == 197e12 and named["TPU v5"] == 459e12 and named["NVIDIA H200"] == 989e12
    assert named.pop("NVIDIA H200 NVL") is None and None not in named.values()
    assert peak(jax.devices()[0]) is None  # a CPU
    assert set(KINDS.values()) == set(PEAKS)
