import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation

from simcse_jax.objectives.ranking_consistency import ranking_consistency

ROWS, TAU = random(2, 5, 3), 0.3


def lists(first, second):
    """(N, N) softmax of each row's similarities with all columns."""
    scores = np.exp([[cosine(row, column) / TAU for column in second] for row in first])
    return scores / scores.sum(axis=1, keepdims=True)


def equation(rows, reading):
    p, q = lists(*rows), lists(*rows[::-1])
    if reading == "released":  # log M has become 1e-7
        return np.sum(p * (np.log(p) - 1e-7) + q * (np.log(q) - 1e-7)) / 2 / len(p)
    middle = (p + q) / 2
    return np.sum(p * np.log(p / middle) + q * np.log(q / middle)) / 2 / len(p)


def loss(rows, reading="paper", temperature=TAU):
    return jnp.mean(ranking_consistency(*rows, *rows, temperature=temperature, reading=reading))


@pytest.mark.parametrize("reading", ["paper", "released"])
def test_value_and_gradient_are_the_equation_s(reading):
    assert_is_equation(lambda rows: loss(rows, reading), lambda rows: equation(rows, reading), ROWS)


def test_as_released_a_probability_is_at_least_1e_7():
    rows = np.stack([np.eye(2, dtype=np.float32)] * 2)
    of_both = jax.jit(jax.value_and_grad(lambda rows: loss(rows, "released", 0.01)))
    value, gradient = of_both(rows)  # the others' are e^-100
    assert float(value) == pytest.approx(1e-7 * np.log(1e-7) - 1e-7, rel=1e-4)
    assert not np.any(gradient)
