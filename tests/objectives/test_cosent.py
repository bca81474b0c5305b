import jax
import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation
from support.steps import alone, named

from simcse_jax.objectives import similarity
from simcse_jax.objectives.cosent import CoSENT

OBJECTIVE = CoSENT()

SCORES = np.float32([0.2, 3, 5, 3, 0, 4.4, 0.2, 1])  # two ties


def loss(rows, scores, temperature=0.05):
    return OBJECTIVE.loss(alone(named(rows), score=scores), temperature=temperature)


value_and_grad = jax.jit(jax.value_and_grad(loss))


def by_the_equation(rows, scores, temperature):
    """log(1 + Σ e^{(s_j − s_i) / τ}) over pairs with y_i > y_j, one term at a time."""
    found = [cosine(x, y) for x, y in zip(*rows, strict=True)]
    pairs = [(i, j) for i in range(len(scores)) for j in range(len(scores)) if scores[i] > scores[j]]
    return np.log(1 + sum(np.exp((found[j] - found[i]) / temperature) for i, j in pairs))


@pytest.mark.parametrize("most", [2**22, 24])  # of 8 × 8 similarities: all at once, or three rows at a time
def test_value_and_gradient_are_the_equation_s_also_in_parts_of_the_rows(most, monkeypatch):
    monkeypatch.setattr(similarity, "SIMILARITIES", most)
    assert_is_equation(
        lambda rows: loss(rows, SCORES, 0.3), lambda rows: by_the_equation(rows, SCORES, 0.3), random(2, 8, 3)
    )


def test_pairs_that_cannot_be_compared_have_no_loss():
    value, gradient = value_and_grad(random(2, 8, 6), np.full(8, 3.0, np.float32))
    assert value == 0 and not np.any(gradient)
    value, gradient = value_and_grad(random(2, 1, 6), SCORES[:1])
    assert value == 0 and not np.any(gradient)


def test_no_temperature_overflows():
    """At τ = 0.001 an exponent may be 2,000; then the loss is the largest one."""
    rows = random(2, 8, 6)
    value, gradient = value_and_grad(rows, SCORES, 0.001)
    found = [cosine(x, y) for x, y in zip(*rows, strict=True)]
    worst = max(float(found[j] - found[i]) for i in range(8) for j in range(8) if SCORES[i] > SCORES[j])
    assert float(value) == pytest.approx(worst / 0.001, rel=1e-5) and np.isfinite(gradient).all()
    right = np.stack([rows[0], np.where(SCORES[:, None] > 3, 1, -1) * rows[0]])  # those of two classes, far apart
    assert value_and_grad(right, np.float32(SCORES > 3), 0.001)[0] == 0
