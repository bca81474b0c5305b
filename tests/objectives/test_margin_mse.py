import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, random
from support.equations import assert_is_equation
from support.taught import assert_same_loss_of_scores, scores_of_both

from simcse_jax.data.scores import read_candidates
from simcse_jax.objectives.candidates import candidate_scores
from simcse_jax.objectives.margin_mse import margin_mse


def loss(rows, teacher, similarity="dot"):
    return jnp.mean(margin_mse(*scores_of_both(rows, teacher, similarity)))


def of_margins(rows, scores):
    """With scores that are read of the data's margins."""
    return jnp.mean(margin_mse(candidate_scores(rows[0], jnp.stack(list(rows[1:])), "dot"), scores))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "similarity", "negatives", "margins"),
    [(loss, "dot", 2, False), (loss, "cosine", 1, False), (of_margins, "dot", 2, True)],
)
def test_is_sentence_transformers_loss(ours, similarity, negatives, margins):
    def chosen(rows, teacher):
        return ours(rows, teacher) if margins else ours(rows, teacher, similarity)

    def peer(losses, function):
        return losses.MarginMSELoss(None, function)

    assert_same_loss_of_scores(chosen, peer, similarity, negatives, margins)


def equation(rows, margins):
    """`margins` of the teacher, (2, 3)."""
    student = np.sum(rows[0] * (rows[1] - rows[2:]), axis=2)
    return np.mean((student - margins) ** 2)


def test_value_and_gradient_are_the_equation_s():
    rows, teacher = random(4, 3, 4), random(4, 3, 2, seed=1)
    margins = np.sum(np.float64(teacher[0]) * (teacher[1] - teacher[2:]), axis=2)
    assert_is_equation(lambda rows: loss(rows, teacher), lambda rows: equation(rows, margins), rows)


def test_margins_of_the_data_are_a_teacher_s():
    rows, margins = random(4, 3, 4), random(2, 3, seed=1)
    scores = np.float32([read_candidates([(list(row), "here")], 3) for row in margins.T.tolist()]).T
    assert_is_equation(lambda rows: of_margins(rows, scores), lambda rows: equation(rows, margins), rows)


def test_sharded_is_whole():
    teacher = random(3, 8, 5, seed=1)

    def of_rows(rows, shared, own, gather, psum):
        scores = scores_of_both(rows, list(jnp.asarray(teacher)[:, own]), "dot")
        return psum(jnp.sum(margin_mse(*scores))) / 8

    assert_sharded_is_whole(of_rows, tuple(random(3, 8, 5)))


def test_negatives_that_an_anchor_lacks_do_not_count():
    student, teacher = random(3, 4), random(3, 4, seed=1)
    there = np.array([[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 1, 1]], bool)
    differences = (student[0] - student[1:]) - (teacher[0] - teacher[1:])
    expected = [np.mean(differences[there[1:, row], row] ** 2) for row in range(4)]
    np.testing.assert_allclose(margin_mse(student, teacher, there), expected, rtol=1e-6)
