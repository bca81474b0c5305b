"""The loss of a recipe and its gradient on any number of devices, and whether two of them are the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.training.loss import make_loss
from simcse_jax.training.recipe import Recipe


def compiled(graph: Any, recipe: Recipe, devices: int = 1, parts: int = 0, gradient: bool = True):
    """Of (params, step, batch, settings, frozen); without its `gradient`, a loss compiles in a third of the time."""
    function = make_loss(graph, recipe, data_mesh(jax.devices()[:devices], parts))
    return jax.jit(function if gradient else lambda *arguments: (function(*arguments)[0], {}))


def computed(function, *arguments):
    """(loss, {name: gradient}) of a compiled function, at step 0."""
    params, *others = arguments
    (loss, _), values = function(params, jnp.int32(0), *others)
    return float(loss), {name: np.asarray(value) for name, value in values.items()}


def assert_same(found, expected, tolerance=1e-5, summands=None):
    """Loss within the tolerance, every gradient within that of its largest value or of its `summands`."""
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        scale = max(np.abs(value).max(), (summands or {}).get(name, 1e-3))
        assert np.abs(found[1][name] - value).max() <= tolerance * scale, name
