import contextlib

import jax
import jax.numpy as jnp
import pytest

from simcse_jax.models.platforms import for_platform, tracing_for

pytestmark = pytest.mark.platforms


def traced_ways(platform=None):
    """The ways that are traced for the platform, and outside of `tracing_for` without one."""
    found = []

    def way(name):
        return lambda x: found.append(name) or x + 1

    def function(x):
        return for_platform(x, default=way("default"), cpu=way("cpu"), cuda=way("cuda"))

    with contextlib.nullcontext() if platform is None else tracing_for(platform):
        jax.jit(function).trace(jnp.ones(2))
    return set(found)


def test_only_the_way_of_a_known_platform_is_traced_and_again_for_another():
    assert traced_ways("cpu") == {"cpu"}
    assert traced_ways("tpu") == {"default"}
    # A GPU's device has the platform "gpu", whoever made it: all are traced, and the compiler chooses.
    assert traced_ways("gpu") == traced_ways() == {"default", "cpu", "cuda"}
    with tracing_for("cpu"):
        assert traced_ways("gpu") == {"default", "cpu", "cuda"}
    function = jax.jit(lambda x: for_platform(x, default=lambda x: x, cpu=lambda x: 2 * x, tpu=lambda x: 3 * x))
    outer = jax.jit(lambda x: function(x) + 1)
    found = []
    for platform in ("tpu", "cpu", "tpu"):
        with tracing_for(platform):
            found.append([function(1.0).item(), outer(1.0).item()])
            traced = function.trace(1.0)
    assert found == [[3, 4], [2, 3], [3, 4]]
    assert function(1.0) == 2  # on this machine, a CPU
    assert traced.lower().compile()(1.0) == 3
