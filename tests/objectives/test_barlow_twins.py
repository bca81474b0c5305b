import jax
import numpy as np
import pytest
from support.checks import random
from support.equations import assert_is_equation

from simcse_jax.objectives import barlow_twins as module

NONE = np.zeros((0, 3), np.float32)


def identity(x):
    return x


def by_the_equation(first, second, artificial, weight, reading):
    """SimCSE++, equation 4 with its first sign corrected; as released, `scd_loss` of simcse/models_re_vicreg.py."""
    first, second = (np.concatenate([view, np.float64(artificial)]) for view in (first, second))
    if reading == "released":  # PyTorch's batch norm
        one, two = ((view - view.mean(0)) / np.sqrt(view.var(0) + 1e-5) for view in (first, second))
        c = one.T @ two / len(one)
    else:
        c = first.T @ second / np.sqrt(np.outer(np.sum(first**2, axis=0), np.sum(second**2, axis=0)))
    diagonal = np.diag(c)
    return np.sum((1 - diagonal) ** 2) + weight * (np.sum(c**2) - np.sum(diagonal**2))


@pytest.mark.parametrize(
    ("reading", "artificial", "weight"),
    [("paper", 0, 1.0), ("paper", 5, 0.3), ("released", 0, 0.3), ("released", 5, 1.0)],
)
def test_value_and_gradient_are_equation_4_s(artificial, weight, reading):
    scale = 0.05 if reading == "released" else 1  # so small that the epsilon shows
    rows = scale * random(artificial, 3, seed=1)
    assert_is_equation(
        lambda *x: module.barlow_twins(*x, rows, identity, off_diagonal_weight=weight, reading=reading),
        lambda *x: by_the_equation(*x, rows, weight, reading),
        *(scale * random(2, 6, 3) + 0.5),
    )


def test_a_dimension_of_zeros_has_a_gradient_of_zero():
    first, second = random(2, 4, 3)
    first[:, 1] = 0
    both = jax.value_and_grad(lambda x: module.barlow_twins(x, second, NONE, identity, off_diagonal_weight=0.3))
    loss, gradient = jax.jit(both)(first)
    assert np.isfinite(loss) and np.all(np.isfinite(gradient))
    assert np.all(gradient[:, 1] == 0) and np.abs(gradient[:, 0]).min() > 0
