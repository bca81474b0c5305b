import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import random
from support.equations import assert_is_equation
from support.steps import alone, named

from simcse_jax.objectives.distill_kl import DistillKL

OBJECTIVE = DistillKL()

ALL, SOME = np.ones((3, 3), bool), np.array([[1, 1, 1], [1, 1, 1], [1, 0, 0]], bool)


def softmax(scores):
    return np.exp(scores) / np.exp(scores).sum()


@pytest.mark.parametrize(("of_teacher", "present"), [(0.0, None), (0.4, SOME)])
def test_value_and_gradient_are_the_equation_s_of_the_candidates_that_an_anchor_has(of_teacher, present):
    teacher = random(4, 3, 2, seed=1)
    there = None if present is None else named(np.concatenate([ALL[:1], present]))

    def ours(rows):
        seen = alone(named(rows), teacher=named(teacher), present=there)
        temperatures = {"temperature": jnp.float32(0.7), "teacher_temperature": jnp.float32(of_teacher)}
        return OBJECTIVE.loss(seen, **temperatures, similarity="dot")

    def equation(rows):
        found = 0.0
        for i, there in enumerate((ALL if present is None else present).T):
            candidates = 1 + np.flatnonzero(there)
            p = softmax(np.float64(teacher)[candidates, i] @ teacher[0, i] / (of_teacher or 0.7))
            q = softmax(rows[candidates, i] @ rows[0, i] / 0.7)
            found += 0.7**2 * np.sum(p * np.log(p / q)) / 3
        return found

    assert_is_equation(ours, equation, random(4, 3, 4))
