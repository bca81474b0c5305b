import functools

import jax
import numpy as np
import pytest
from support.checks import random
from support.equations import assert_is_equation

from simcse_jax.objectives import dimension_wise as module

dimension_wise = jax.jit(module.dimension_wise, static_argnames=("psum", "reading"))
READINGS = pytest.mark.parametrize("reading", ("paper", "released"))


def identity(x):
    return x


@functools.partial(jax.jit, static_argnames="reading")
def value_and_grad(first, second, temperature, reading="paper"):
    def loss(first):
        return module.dimension_wise(first, second, identity, temperature=temperature, reading=reading)

    return jax.value_and_grad(loss)(first)


def by_the_equation(first, second, temperature, reading="paper"):
    """SimCSE++, equation 5, dimension by dimension in float64."""
    count, size = first.shape

    def standardized(z):
        z = np.float64(z)
        deviation = z.std(axis=0, ddof=int(reading == "paper"))
        constant = np.all(z == z[0], axis=0)  # counts as zero: our rule; the paper has none
        return np.where(constant, 0, z - z.mean(axis=0)) / np.where(constant, 1, deviation)

    s = standardized(first).T @ standardized(second) / temperature / (1 if reading == "paper" else count)
    losses = [-np.log(np.exp(s[c, c]) / sum(np.exp(s[c]))) for c in range(size)]
    return sum(losses) if reading == "paper" else sum(losses) / size


@READINGS
def test_value_and_gradient_are_equation_5_s(reading):
    assert_is_equation(
        lambda *x: module.dimension_wise(*x, identity, temperature=0.7, reading=reading),
        lambda *x: by_the_equation(*x, 0.7, reading),
        *(3 * random(2, 5, 4) + 2),
    )


@READINGS
def test_a_constant_dimension_counts_as_zero(reading):
    first, second = random(2, 7, 3)
    for constant in (0.0, 0.1, 3.3, 1e4):
        first[:, 1] = second[:, 1] = constant
        loss, gradient = value_and_grad(first, second, 0.5, reading)
        assert np.isfinite(loss) and np.all(np.isfinite(gradient))
        assert np.all(gradient[:, 1] == 0) and np.abs(gradient[:, 0]).min() > 0
        np.testing.assert_allclose(loss, by_the_equation(first, second, 0.5, reading), rtol=1e-5)


def test_a_constant_dimension_is_recognized_in_a_large_batch_and_a_large_mean_costs_no_precision():
    first, second = random(2, 20_000, 2)
    first[:, 1] = 0.1
    ours = dimension_wise(first, second, identity, temperature=20_000.0)
    np.testing.assert_allclose(ours, by_the_equation(first, second, 20_000.0), rtol=1e-5)
    first, second = random(2, 7, 3) + np.float32(100)
    loss, _ = value_and_grad(first, second, 0.5, "paper")
    np.testing.assert_allclose(loss, by_the_equation(first, second, 0.5), rtol=1e-4)


@READINGS
def test_a_batch_of_one_is_finite(reading):
    one = random(1, 3)
    value, gradient = value_and_grad(one, one, 5.0, reading)
    assert np.isfinite(value) and np.all(np.asarray(gradient) == 0)
