import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, random

from simcse_jax.objectives import barlow_twins as module

barlow_twins = jax.jit(module.barlow_twins, static_argnames="psum")

NONE = np.zeros((0, 3), np.float32)


def identity(x):
    return x


def by_the_equation(first, second, artificial, weight):
    """SimCSE++, equation 4 with its first sign corrected, term by term in float64."""
    first, second = (np.float64([*view, *artificial]) for view in (first, second))
    total = 0.0
    for c in range(first.shape[1]):
        for d in range(first.shape[1]):
            norms = np.sqrt(sum(first[:, c] ** 2)) * np.sqrt(sum(second[:, d] ** 2))
            correlation = sum(first[i, c] * second[i, d] for i in range(len(first))) / norms
            total += (1 - correlation) ** 2 if c == d else weight * correlation**2
    return total


@pytest.mark.parametrize("artificial", [0, 5])
@pytest.mark.parametrize("weight", [0.005, 1.0])
def test_is_equation_4(artificial, weight):
    first, second = random(2, 6, 3) + 0.5
    rows = random(artificial, 3, seed=1)
    ours = barlow_twins(first, second, rows, identity, off_diagonal_weight=weight)
    assert ours.shape == ()
    np.testing.assert_allclose(ours, by_the_equation(first, second, rows, weight), rtol=1e-5)


def test_by_hand():
    # First view: columns (3, 4) and (0, 2). Second: (4, 3) and (5, 0). Norms 5, 2; 5, 5.
    # C = (24/25, 15/25; 6/10, 0) = (0.96, 0.6; 0.6, 0), so 0.04² + 1² + 0.5 (0.36 + 0.36) = 1.3616.
    first, second = jnp.array([[3.0, 0.0], [4.0, 2.0]]), jnp.array([[4.0, 5.0], [3.0, 0.0]])
    ours = barlow_twins(first, second, jnp.zeros((0, 2)), identity, off_diagonal_weight=0.5)
    np.testing.assert_allclose(ours, 1.3616, rtol=1e-6)
    # One artificial row (0, √5): the products of the second columns become 0 + 5, their norms 3 and √30.
    # C = (0.96, 15/(5√30); 6/15, 5/(3√30)).
    ours = barlow_twins(first, second, jnp.array([[0.0, 5**0.5]]), identity, off_diagonal_weight=0.5)
    expected = 0.04**2 + (1 - 5 / (3 * 30**0.5)) ** 2 + 0.5 * (9 / 30 + 0.16)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_the_loss_is_least_at_the_identity():
    orthogonal = jnp.eye(3) * jnp.array([1.0, 2.0, 3.0])
    assert barlow_twins(orthogonal, 5 * orthogonal, NONE, identity, off_diagonal_weight=1.0) == pytest.approx(0)
    # Fewer sentences than dimensions cannot reach it; artificial rows can.
    one = jnp.array([[1.0, 1e-3, 1e-3]])
    assert barlow_twins(one, one, NONE, identity, off_diagonal_weight=1.0) > 1
    rows = 10 * jnp.eye(3)
    assert barlow_twins(one, one, rows, identity, off_diagonal_weight=1.0) < 1e-3


@pytest.mark.parametrize("artificial", [0, 2])
def test_gradient(artificial):
    rows = random(artificial, 3, seed=1)
    assert_gradient(
        lambda *x: barlow_twins(*x, rows, identity, off_diagonal_weight=0.3),
        lambda *x: by_the_equation(*x, rows, 0.3),
        *random(2, 4, 3),
    )


@pytest.mark.parametrize("artificial", [0, 5])
def test_sharded_is_whole(artificial):
    rows = jnp.asarray(random(artificial, 3, seed=1))

    def loss(x, shared, own, gather, psum):
        return barlow_twins(x[:, 0], x[:, 1], rows, psum, off_diagonal_weight=0.3)

    assert_sharded_is_whole(loss, random(8, 2, 3))


def test_a_dimension_of_zeros_has_a_gradient_of_zero():
    first, second = random(2, 4, 3)
    first[:, 1] = 0
    loss, gradient = jax.jit(
        jax.value_and_grad(lambda x: barlow_twins(x, second, NONE, identity, off_diagonal_weight=0.3))
    )(first)
    assert np.isfinite(loss) and np.all(np.isfinite(gradient))
    assert np.all(gradient[:, 1] == 0) and np.abs(gradient[:, 0]).min() > 0
