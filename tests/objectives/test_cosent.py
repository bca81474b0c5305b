import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, random
from support.graded import SCORES, assert_is_peer_s, assert_ranking_sharded_is_whole, loss

from simcse_jax.objectives import similarity
from simcse_jax.objectives.similarity import cosine


def by_the_equation(rows, scores, temperature, similarity):
    """log(1 + Σ e^{(s_j − s_i) / τ}) over pairs with y_i > y_j, one term at a time in float64."""
    found = [similarity(x, y) for x, y in zip(*np.float64(rows), strict=True)]
    pairs = [(i, j) for i in range(len(scores)) for j in range(len(scores)) if scores[i] > scores[j]]
    return np.log(1 + sum(np.exp((found[j] - found[i]) / temperature) for i, j in pairs))


def numpy_cosine(x, y):
    return x @ y / np.sqrt(x @ x * (y @ y))


def test_is_sentence_transformers_loss():
    assert_is_peer_s(loss, "CoSENTLoss", random(2, 8, 6), SCORES)


def test_by_hand():
    # Cosines 1, 0 and −1 with scores 0, 1 and 2, all in the wrong order: three terms, e^1, e^1 and e^2.
    rows = np.float32([[[1, 0]] * 3, [[2, 0], [0, 1], [-1, 0]]])
    expected = np.log(1 + 2 * np.e + np.e**2)
    assert float(loss(rows, jnp.array([0.0, 1.0, 2.0]), 1.0)) == pytest.approx(expected, rel=1e-6)


def test_value_and_gradient_are_the_equation_s():
    rows = random(2, 5, 3)
    scores = SCORES[:5]
    assert float(loss(rows, scores, 0.3)) == pytest.approx(by_the_equation(rows, scores, 0.3, numpy_cosine), rel=1e-5)
    assert_gradient(
        lambda rows: loss(rows, scores, 0.3), lambda rows: by_the_equation(rows, scores, 0.3, numpy_cosine), rows
    )


def test_pairs_that_cannot_be_compared_have_no_loss():
    value, gradient = jax.value_and_grad(lambda rows: loss(rows, np.full(8, 3.0)))(random(2, 8, 6))
    assert value == 0 and not np.any(gradient)
    value, gradient = jax.value_and_grad(lambda rows: loss(rows, SCORES[:1]))(random(2, 1, 6))
    assert value == 0 and not np.any(gradient)


def test_no_temperature_overflows():
    """At τ = 0.001 an exponent may be 2,000; then the loss is the largest one."""
    rows = random(2, 8, 6)
    value, gradient = jax.value_and_grad(lambda rows: loss(rows, SCORES, 0.001))(rows)
    found = cosine(*rows)
    worst = max(float(found[j] - found[i]) for i in range(8) for j in range(8) if SCORES[i] > SCORES[j])
    assert float(value) == pytest.approx(worst / 0.001, rel=1e-5) and np.isfinite(gradient).all()
    right = np.float32([[[1, 0]] * 2, [[1, 0], [-1, 0]]])  # the right order, by far
    assert loss(right, np.float32([1, 0]), 0.001) == 0


def test_parts_of_the_rows_change_nothing(monkeypatch):
    rows = random(2, 8, 6)
    whole = jax.value_and_grad(lambda rows: loss(rows, SCORES))(rows)
    monkeypatch.setattr(similarity, "SIMILARITIES", 24)
    for ours, expected in zip(jax.value_and_grad(lambda rows: loss(rows, SCORES))(rows), whole, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_sharded_is_whole():
    assert_ranking_sharded_is_whole(cosine)
