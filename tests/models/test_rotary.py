import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.models.model_types import RotaryScaling
from simcse_jax.models.rotary import frequencies, rotate, rotation

X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 5, 8)), jnp.float32)


def turned(positions, base=100.0):
    return np.asarray(rotate(X, rotation(positions, 8, base)))


def test_each_pair_is_a_complex_number_turned_by_its_position_times_its_frequency_scaled_or_not():
    positions = np.array([[0, 1, 2, 3, 4], [4, 2, 0, 1, 3]])
    pairs = np.asarray(X)[..., :4] + 1j * np.asarray(X)[..., 4:]
    wanted = pairs * np.exp(1j * (positions[:, None, :, None] * 100.0 ** (-np.arange(4) / 4)))
    np.testing.assert_allclose(turned(positions), np.concatenate([wanted.real, wanted.imag], -1), atol=1e-5)
    assert np.abs(turned(positions, 50.0) - turned(positions)).max() > 0.01
    np.testing.assert_array_equal(rotate(X, None), X)
    by = rotation(np.array([[3, 0, 1]]), 8, 100.0)
    np.testing.assert_array_equal(by.first().cos, rotation(np.array([[3]]), 8, 100.0).cos)
    # A product knows the distance alone.
    near, far = (turned(np.arange(5)[None] + offset) for offset in (0, 900))
    products = [x[:, :, 1:2] @ x[:, :, 3:4].swapaxes(2, 3) for x in (near, far)]
    np.testing.assert_allclose(*products, atol=1e-3)
    found = frequencies(64, 160000.0)
    assert found.dtype == np.float32 and found[0] == 1.0
    assert found[-1] == pytest.approx(160000.0 ** (-31 / 32), rel=1e-6)
    usual = frequencies(64, 1e4)
    np.testing.assert_allclose(frequencies(64, 1e4, RotaryScaling("linear", 4.0)), usual / 4, rtol=1e-6)
    for kind, low, high in (("llama3", 1.0, 4.0), ("yarn", 1.0, 32.0)):
        found = frequencies(64, 1e4, RotaryScaling(kind, 4.0, 256, low, high)) / usual
        turns = 256 * usual / (2 * np.pi)
        np.testing.assert_allclose(found[turns > high * 1.5], 1.0, rtol=1e-6)
        np.testing.assert_allclose(found[turns < low / 1.5], 0.25, rtol=1e-6)
        assert np.all(np.diff(found) <= 1e-7) and np.any((found > 0.26) & (found < 0.99))
    assert rotation(np.array([[0]]), 8, 1e4, RotaryScaling("yarn", 4.0, 256, 1.0, 32.0, attention=1.5)).cos.max() == 1.5
