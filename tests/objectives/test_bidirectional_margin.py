import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation
from support.steps import alone, named

from simcse_jax.objectives.bidirectional_margin import BidirectionalMargin

OBJECTIVE = BidirectionalMargin()

LOWER, UPPER = 0.1, 0.3


def equation(anchors, positives, negatives):
    margins = [
        cosine(a, n) - cosine(a, p) for kind in negatives for a, p, n in zip(anchors, positives, kind, strict=True)
    ]
    return np.mean([max(0, margin + LOWER) + max(0, -margin - UPPER) for margin in margins])


def of_batch(rows, present=None):
    there = None if present is None else named(jnp.concatenate([jnp.ones((2, rows.shape[1]), bool), present]))
    return OBJECTIVE.loss(alone(named(rows), present=there), lower=LOWER, upper=UPPER)


def test_value_and_gradient_are_the_equation_s():
    assert_is_equation(of_batch, lambda rows: equation(rows[0], rows[1], rows[2:]), random(4, 5, 4))


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
