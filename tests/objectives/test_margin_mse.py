import numpy as np
import pytest
from support.checks import random
from support.equations import assert_is_equation
from support.steps import alone, named

from simcse_jax.data.scores import read_candidates
from simcse_jax.objectives.margin_mse import MarginMSE, margin_mse

OBJECTIVE = MarginMSE()


@pytest.mark.parametrize("from_data", [False, True])
def test_value_and_gradient_are_the_equation_s_with_a_teacher_or_the_margins_of_the_data(from_data):
    teacher, margins = random(4, 3, 2, seed=1), random(2, 3, seed=1)
    if from_data:
        given = {"score": np.float32([read_candidates([(list(row), "here")], 3) for row in margins.T.tolist()])}
    else:
        given = {"teacher": named(teacher)}
        margins = np.sum(np.float64(teacher[0]) * (teacher[1] - teacher[2:]), axis=2)

    def equation(rows):
        return np.mean((np.sum(rows[0] * (rows[1] - rows[2:]), axis=2) - margins) ** 2)

    assert_is_equation(
        lambda rows: OBJECTIVE.loss(alone(named(rows), **given), similarity="dot"), equation, random(4, 3, 4)
    )


def test_negatives_that_an_anchor_lacks_do_not_count():
    student, teacher = random(3, 4), random(3, 4, seed=1)
    there = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 1, 1]], bool)
    differences = (student[0] - student[1:]) - (teacher[0] - teacher[1:])
    expected = [np.mean(differences[there[1:, row], row] ** 2) for row in range(4)]
    np.testing.assert_allclose(margin_mse(student, teacher, there), expected, rtol=1e-6)
