"""An objective against its equation, written down in NumPy: the value and the gradient of one compiled program."""

import jax
import numpy as np


def assert_is_equation(ours, equation, *arrays, rtol=1e-5):
    """The scalar `ours` and its gradient are those of the NumPy `equation` in float64, by central differences."""
    value, found = jax.jit(jax.value_and_grad(ours, argnums=tuple(range(len(arrays)))))(*arrays)
    arrays = [np.float64(array) for array in arrays]
    np.testing.assert_allclose(value, equation(*arrays), rtol=rtol)
    for number, array in enumerate(arrays):
        expected = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            step = np.zeros_like(array)
            step[place] = 1e-5
            up, down = (equation(*arrays[:number], array + sign * step, *arrays[number + 1 :]) for sign in (1, -1))
            expected[place] = (up - down) / 2e-5
        assert np.abs(expected).max() > 1e-6  # a gradient of zero would prove nothing
        np.testing.assert_allclose(found[number], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
