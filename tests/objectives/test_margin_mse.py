import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, random
from support.taught import assert_same_loss_of_scores, scores_of_both

from simcse_jax.objectives.candidates import candidate_scores
from simcse_jax.objectives.margin_mse import margin_mse


def loss(rows, teacher, similarity="dot"):
    return jnp.mean(margin_mse(*scores_of_both(rows, teacher, similarity)))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("negatives", [1, 2])
def test_is_sentence_transformers_loss(similarity, negatives):
    def peer(losses, function):
        return losses.MarginMSELoss(None, function)

    assert_same_loss_of_scores(lambda *both: loss(*both, similarity), peer, similarity, negatives)


@pytest.mark.parametrize("negatives", [1, 2])
def test_margins_of_the_data_are_sentence_transformers_labels(negatives):
    def ours(rows, scores):
        student = candidate_scores(rows[0], jnp.stack(list(rows[1:])), "dot")
        return jnp.mean(margin_mse(student, scores))

    assert_same_loss_of_scores(
        ours, lambda losses, function: losses.MarginMSELoss(None, function), "dot", negatives, True
    )


def test_value_and_gradient_are_the_equation_s():
    rows, teacher = random(3, 3, 4), random(3, 3, 2, seed=1)

    def equation(rows):
        found = 0.0
        for i in range(3):
            (a, p, n), (ta, tp, tn) = rows[:, i], np.float64(teacher[:, i])
            found += ((a @ p - a @ n) - (ta @ tp - ta @ tn)) ** 2 / 3
        return found

    assert float(loss(rows, teacher)) == pytest.approx(equation(np.float64(rows)), rel=1e-5)
    assert_gradient(lambda rows: loss(rows, teacher), equation, rows)


def test_sharded_is_whole():
    teacher = random(3, 8, 5, seed=1)

    def of_rows(rows, shared, own, gather, psum):
        scores = scores_of_both(rows, list(jnp.asarray(teacher)[:, own]), "dot")
        return psum(jnp.sum(margin_mse(*scores))) / 8

    assert_sharded_is_whole(of_rows, tuple(random(3, 8, 5)), devices=(2, 8))


def test_negatives_that_an_anchor_lacks_do_not_count():
    student, teacher = random(3, 4, 1)[..., 0], random(3, 4, 1, seed=1)[..., 0]
    there = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 1, 1]], bool)
    differences = (student[0] - student[1:]) - (teacher[0] - teacher[1:])
    expected = [np.mean(differences[there[1:, row], row] ** 2) for row in range(4)]
    np.testing.assert_allclose(margin_mse(student, teacher, there), expected, rtol=1e-6)
