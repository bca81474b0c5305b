import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, random
from support.taught import assert_same_loss_of_scores, scores_of_both

from simcse_jax.objectives.distill_kl import distill_kl


def loss(rows, teacher, similarity="dot", temperature=1.0, present=None, teacher_temperature=None):
    scores, temperatures = scores_of_both(rows, teacher, similarity), (temperature, teacher_temperature)
    return jnp.mean(
        distill_kl(*scores, temperature=temperatures[0], teacher_temperature=temperatures[1], present=present)
    )


@pytest.mark.parametrize(
    ("similarity", "negatives", "temperature", "of_teacher"),
    [("dot", 1, 1.0, None), ("dot", 3, 2.0, 0.5), ("cosine", 2, 0.1, None)],
)
def test_is_sentence_transformers_loss(similarity, negatives, temperature, of_teacher):
    def peer(losses, function):
        return losses.DistillKLDivLoss(None, function, temperature=temperature, teacher_temperature=of_teacher)

    def ours(*both):
        return loss(*both, similarity, temperature, teacher_temperature=of_teacher)

    assert_same_loss_of_scores(ours, peer, similarity, negatives)


def test_value_and_gradient_are_the_equation_s():
    rows, teacher = random(3, 3, 4), random(3, 3, 2, seed=1)

    def equation(rows):
        found = 0.0
        for i in range(3):
            p, q = (
                np.exp(x[1:, i] @ x[0, i] / 0.7) / np.exp(x[1:, i] @ x[0, i] / 0.7).sum()
                for x in (np.float64(teacher), rows)
            )
            found += 0.7**2 * np.sum(p * np.log(p / q)) / 3
        return found

    assert float(loss(rows, teacher, temperature=0.7)) == pytest.approx(equation(np.float64(rows)), rel=1e-5)
    assert_gradient(lambda rows: loss(rows, teacher, temperature=0.7), equation, rows)


def test_a_student_that_agrees_has_no_loss():
    rows = random(4, 5, 6)
    value, gradient = jax.value_and_grad(loss)(rows, rows)
    assert abs(value) < 1e-6 and np.abs(gradient).max() < 1e-5


def test_candidates_that_an_anchor_lacks_do_not_count():
    rows, teacher = random(4, 3, 5), random(4, 3, 5, seed=1)
    there = np.array([[1, 1, 1], [1, 1, 1], [1, 0, 0]], bool)
    found, gradient = jax.value_and_grad(lambda rows: loss(rows, teacher, present=there))(rows)
    one, two = loss(rows[:, :1], teacher[:, :1]), loss(rows[:3, 1:], teacher[:3, 1:])
    assert float(found) == pytest.approx((float(one) + 2 * float(two)) / 3, rel=1e-6)
    assert np.isfinite(gradient).all() and not np.any(gradient[3, 1:])


def test_sharded_is_whole():
    teacher = random(3, 8, 5, seed=1)

    def of_rows(rows, shared, own, gather, psum):
        scores = scores_of_both(rows, list(jnp.asarray(teacher)[:, own]), "dot")
        return psum(jnp.sum(distill_kl(*scores, temperature=1.0))) / 8

    assert_sharded_is_whole(of_rows, tuple(random(3, 8, 5)), devices=(2, 8))
