import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, random

from simcse_jax.objectives import barlow_twins as module

barlow_twins = jax.jit(module.barlow_twins, static_argnames=("psum", "reading"))
READINGS = pytest.mark.parametrize("reading", ["paper", "released"])

NONE = np.zeros((0, 3), np.float32)


def identity(x):
    return x


def by_the_equation(first, second, artificial, weight, reading="paper"):
    """SimCSE++, equation 4 with its first sign corrected, term by term in float64."""
    first, second = (np.float64([*view, *artificial]) for view in (first, second))
    if reading == "released":
        return as_released(first, second, weight)
    total = 0.0
    for c in range(first.shape[1]):
        for d in range(first.shape[1]):
            norms = np.sqrt(sum(first[:, c] ** 2)) * np.sqrt(sum(second[:, d] ** 2))
            correlation = sum(first[i, c] * second[i, d] for i in range(len(first))) / norms
            total += (1 - correlation) ** 2 if c == d else weight * correlation**2
    return total


def as_released(first, second, weight):
    """`scd_loss` of the authors' simcse/models_re_vicreg.py in NumPy, with a batch norm's variance and epsilon."""
    one, two = ((view - view.mean(0)) / np.sqrt(view.var(0) + 1e-5) for view in (first, second))
    c = one.T @ two / len(one)
    on_diagonal = np.sum((np.diag(c) - 1) ** 2)
    return on_diagonal + weight * (np.sum(c**2) - np.sum(np.diag(c) ** 2))


def test_as_released_is_pytorch_s_batch_norm():
    torch = pytest.importorskip("torch")
    first, second = random(2, 6, 3) * 0.01 + 0.5  # so small that the epsilon shows
    rows = random(4, 3, seed=1) * 0.01
    norm = torch.nn.BatchNorm1d(3, affine=False)
    z1, z2 = (norm(torch.tensor(np.concatenate([view, rows]))) for view in (first, second))
    c = (z1.T @ z2).div_(len(z1))
    off_diagonal = c[~torch.eye(3, dtype=bool)].pow(2).sum()
    expected = torch.diagonal(c).add_(-1).pow_(2).sum() + 0.012 * off_diagonal
    ours = barlow_twins(first, second, rows, identity, off_diagonal_weight=0.012, reading="released")
    np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-4)


@READINGS
@pytest.mark.parametrize("artificial", [0, 5])
@pytest.mark.parametrize("weight", [0.005, 1.0])
def test_is_equation_4(artificial, weight, reading):
    first, second = random(2, 6, 3) + 0.5
    rows = random(artificial, 3, seed=1)
    ours = barlow_twins(first, second, rows, identity, off_diagonal_weight=weight, reading=reading)
    assert ours.shape == ()
    np.testing.assert_allclose(ours, by_the_equation(first, second, rows, weight, reading), rtol=1e-5)


def test_a_shift_changes_the_reading_of_the_paper_alone():
    first, second = random(2, 6, 3)

    def losses(reading):
        views = ((first, second), (first + 10, second - 10))
        return [float(barlow_twins(*x, NONE, identity, off_diagonal_weight=0.3, reading=reading)) for x in views]

    assert losses("released")[0] == pytest.approx(losses("released")[1], rel=1e-4)
    assert losses("paper")[0] != pytest.approx(losses("paper")[1], rel=0.1)


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


@READINGS
@pytest.mark.parametrize("artificial", [0, 2])
def test_gradient(artificial, reading):
    rows = random(artificial, 3, seed=1)
    assert_gradient(
        lambda *x: barlow_twins(*x, rows, identity, off_diagonal_weight=0.3, reading=reading),
        lambda *x: by_the_equation(*x, rows, 0.3, reading),
        *random(2, 4, 3),
    )


@READINGS
@pytest.mark.parametrize("artificial", [0, 5])
def test_sharded_is_whole(artificial, reading):
    rows = jnp.asarray(random(artificial, 3, seed=1))

    def loss(x, shared, own, gather, psum):
        return barlow_twins(x[:, 0], x[:, 1], rows, psum, off_diagonal_weight=0.3, reading=reading)

    assert_sharded_is_whole(loss, random(8, 2, 3))


def test_a_dimension_of_zeros_has_a_gradient_of_zero():
    first, second = random(2, 4, 3)
    first[:, 1] = 0
    loss, gradient = jax.jit(
        jax.value_and_grad(lambda x: barlow_twins(x, second, NONE, identity, off_diagonal_weight=0.3))
    )(first)
    assert np.isfinite(loss) and np.all(np.isfinite(gradient))
    assert np.all(gradient[:, 1] == 0) and np.abs(gradient[:, 0]).min() > 0
