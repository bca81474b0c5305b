import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, random

from simcse_jax.objectives import dimension_wise as module

dimension_wise = jax.jit(module.dimension_wise, static_argnames=("psum", "reading"))


def identity(x):
    return x


@functools.partial(jax.jit, static_argnames="reading")
def value_and_grad(first, second, temperature, reading):
    def loss(first):
        return module.dimension_wise(first, second, identity, temperature=temperature, reading=reading)

    return jax.value_and_grad(loss)(first)


def by_the_equation(first, second, temperature, reading):
    """SimCSE++, equation 5, term by term in float64."""
    count, size = first.shape

    def standardized(z, c):
        column = np.float64(z[:, c])
        if np.all(column == column[0]):
            return np.zeros(count)  # our rule; the paper has none
        mean = sum(column) / count
        variance = sum((column - mean) ** 2) / (count - 1 if reading == "paper" else count)
        return (column - mean) / np.sqrt(variance)

    def s(c, d):
        product = sum(standardized(first, c) * standardized(second, d))
        return product / temperature / (1 if reading == "paper" else count)

    losses = [-np.log(np.exp(s(c, c)) / sum(np.exp(s(c, d)) for d in range(size))) for c in range(size)]
    return sum(losses) if reading == "paper" else sum(losses) / size


READINGS = pytest.mark.parametrize("reading", ["paper", "released"])


@READINGS
@pytest.mark.parametrize("temperature", [0.5, 5.0])
def test_is_equation_5(reading, temperature):
    first, second = 3 * random(2, 7, 5) + 2
    ours = dimension_wise(first, second, identity, temperature=temperature, reading=reading)
    assert ours.shape == ()
    np.testing.assert_allclose(ours, by_the_equation(first, second, temperature, reading), rtol=1e-5)


def test_by_hand():
    # Two sentences, two dimensions: columns (1, 3) and (5, 1), centred (−1, 1) and (2, −2).
    # N − 1 = 1: variances 2 and 8, z̃ = (−1, 1)/√2 and (1, −1)/√2, products 1 (c = d) and −1 (c ≠ d).
    # Each dimension's loss at τ = 2: log(1 + e^((−1 − 1)/2)), two of them.
    z = jnp.array([[1.0, 5.0], [3.0, 1.0]])
    np.testing.assert_allclose(dimension_wise(z, z, identity, temperature=2.0), 2 * np.log1p(np.exp(-1)), rtol=1e-6)
    # N = 2: z̃ = (−1, 1) and (1, −1), products ±2, divided by N ±1: the same losses, and their mean.
    ours = dimension_wise(z, z, identity, temperature=2.0, reading="released")
    np.testing.assert_allclose(ours, np.log1p(np.exp(-1)), rtol=1e-6)


def test_a_dimension_of_the_first_view_chooses_among_those_of_the_second():
    # As above, with the second view's two columns equal to the first view's first: row 1 of s is (1, 1)/τ, row 2
    # (−1, −1)/τ, each a loss of log 2. The other way round they would be log(1 + e^(∓2/τ)).
    first, second = jnp.array([[1.0, 5.0], [3.0, 1.0]]), jnp.array([[1.0, 1.0], [3.0, 3.0]])
    np.testing.assert_allclose(dimension_wise(first, second, identity, temperature=2.0), 2 * np.log(2), rtol=1e-6)


def test_one_reading_becomes_the_other():
    first, second = random(2, 8, 5)
    paper = dimension_wise(first, second, identity, temperature=5.0)
    released = dimension_wise(first, second, identity, temperature=5.0 / 7, reading="released")
    np.testing.assert_allclose(paper, 5 * released, rtol=1e-5)


@READINGS
def test_gradient(reading):
    arguments = {"temperature": 0.7, "reading": reading}
    assert_gradient(
        lambda *x: dimension_wise(*x, identity, **arguments),
        lambda *x: by_the_equation(*x, **arguments),
        *random(2, 4, 3),
    )


@READINGS
def test_sharded_is_whole(reading):
    def loss(x, shared, own, gather, psum):
        return dimension_wise(x[:, 0], x[:, 1], psum, temperature=2.0, reading=reading)

    assert_sharded_is_whole(loss, random(8, 2, 5) + np.arange(8, dtype=np.float32)[:, None, None])


@READINGS
@pytest.mark.parametrize("constant", [0.0, 0.1, 3.3, 1e4])
def test_a_constant_dimension_counts_as_zero(reading, constant):
    first, second = random(2, 7, 3)
    first[:, 1] = second[:, 1] = constant

    loss, gradient = value_and_grad(first, second, temperature=0.5, reading=reading)
    assert np.isfinite(loss) and np.all(np.isfinite(gradient))
    assert np.all(gradient[:, 1] == 0) and np.abs(gradient[:, 0]).min() > 0
    np.testing.assert_allclose(loss, by_the_equation(first, second, 0.5, reading), rtol=1e-5)


def test_a_constant_dimension_is_recognized_in_a_large_batch():
    first, second = random(2, 20_000, 2)
    first[:, 1] = 0.1
    ours = dimension_wise(first, second, identity, temperature=20_000.0)
    np.testing.assert_allclose(ours, by_the_equation(first, second, 20_000.0, "paper"), rtol=1e-5)


@READINGS
def test_a_batch_of_one_is_finite(reading):
    one = random(1, 3)
    value, gradient = value_and_grad(one, one, temperature=5.0, reading=reading)
    assert np.isfinite(value) and np.all(np.asarray(gradient) == 0)


def test_a_large_mean_costs_no_precision():
    first, second = random(2, 16, 4)
    expected = by_the_equation(first + np.float32(100), second + np.float32(100), 0.5, "paper")
    ours = dimension_wise(first + np.float32(100), second + np.float32(100), identity, temperature=0.5)
    np.testing.assert_allclose(ours, expected, rtol=1e-4)
