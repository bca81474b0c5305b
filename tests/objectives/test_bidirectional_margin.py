import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, cosine, random
from support.equations import assert_is_equation
from support.steps import alone

from simcse_jax.objectives.bidirectional_margin import OBJECTIVE, bidirectional_margin

LOWER, UPPER = 0.1, 0.3


def equation(anchors, positives, negatives):
    margins = [
        cosine(a, n) - cosine(a, p) for kind in negatives for a, p, n in zip(anchors, positives, kind, strict=True)
    ]
    return np.mean([max(0, margin + LOWER) + max(0, -margin - UPPER) for margin in margins])


def of_batch(rows, present=None):
    views = {"anchor": rows[0], "positive": rows[1], "hard_negatives": rows[2:]}
    there = None if present is None else {name: np.ones(rows.shape[1], bool) for name in ("anchor", "positive")}
    seen = alone(views, present=there and there | {"hard_negatives": present})
    return OBJECTIVE.loss(seen, lower=LOWER, upper=UPPER)


def test_value_and_gradient_are_the_equation_s():
    assert_is_equation(of_batch, lambda rows: equation(rows[0], rows[1], rows[2:]), random(4, 5, 4))


def test_a_margin_within_its_bounds_has_no_loss_and_others_are_moved_towards_it():
    anchors = np.array([[1, 0]] * 3, np.float32)
    negatives = np.array([[[0.95, (1 - 0.95**2) ** 0.5], [0.8, 0.6], [0.6, 0.8]]], np.float32)  # margins .05, .2 and .4
    losses = bidirectional_margin(anchors, anchors, negatives, lower=LOWER, upper=UPPER)
    np.testing.assert_allclose(losses, [[0.05, 0.0, 0.1]], atol=1e-6)


def test_soft_negatives_that_rows_lack_count_for_nothing():
    rows = random(4, 5, 4)
    present = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]], bool)
    both = jax.jit(jax.value_and_grad(of_batch))
    value, gradient = both(rows, present)
    own = [equation(rows[0, [row]], rows[1, [row]], rows[2 + kind, None, [row]]) for kind, row in np.argwhere(present)]
    assert float(value) == pytest.approx(np.mean(own), rel=1e-5)
    assert not np.any(np.asarray(gradient[2:])[~present]) and not np.any(gradient[:, [2, 4]])
    none, gradient = both(rows, np.zeros_like(present))
    assert none == 0 and not np.any(gradient)
    assert float(both(rows, np.ones_like(present))[0]) == pytest.approx(equation(*rows[:2], rows[2:]), rel=1e-5)


def test_sharded_is_whole():
    def of_rows(rows, shared, own, gather, psum):
        anchors, positives, negatives = rows
        return psum(jnp.sum(bidirectional_margin(anchors, positives, negatives[None], lower=LOWER, upper=UPPER)))

    assert_sharded_is_whole(of_rows, tuple(random(3, 8, 5)))
