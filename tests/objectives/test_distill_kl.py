import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, random
from support.equations import assert_is_equation
from support.taught import assert_same_loss_of_scores, scores_of_both

from simcse_jax.objectives.distill_kl import distill_kl

ALL, SOME = np.ones((3, 3), bool), np.array([[1, 1, 1], [1, 1, 1], [1, 0, 0]], bool)


def loss(rows, teacher, similarity="dot", temperature=0.7, of_teacher=None, present=None):
    fields = {"temperature": temperature, "teacher_temperature": of_teacher, "present": present}
    return jnp.mean(distill_kl(*scores_of_both(rows, teacher, similarity), **fields))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("similarity", "negatives", "temperature", "of_teacher"), [("dot", 3, 2.0, 0.5), ("cosine", 1, 0.1, None)]
)
def test_is_sentence_transformers_loss(similarity, negatives, temperature, of_teacher):
    def peer(losses, function):
        return losses.DistillKLDivLoss(None, function, temperature=temperature, teacher_temperature=of_teacher)

    def ours(rows, teacher):
        return loss(rows, teacher, similarity, temperature, of_teacher)

    assert_same_loss_of_scores(ours, peer, similarity, negatives)


def softmax(scores):
    return np.exp(scores) / np.exp(scores).sum()


@pytest.mark.parametrize(("of_teacher", "present"), [(None, None), (0.4, SOME)])
def test_value_and_gradient_are_the_equation_s_of_the_candidates_that_an_anchor_has(of_teacher, present):
    teacher = random(4, 3, 2, seed=1)

    def equation(rows):
        found = 0.0
        for i, there in enumerate((ALL if present is None else present).T):
            candidates = 1 + np.flatnonzero(there)
            p = softmax(np.float64(teacher)[candidates, i] @ teacher[0, i] / (of_teacher or 0.7))
            q = softmax(rows[candidates, i] @ rows[0, i] / 0.7)
            found += 0.7**2 * np.sum(p * np.log(p / q)) / 3
        return found

    assert_is_equation(lambda rows: loss(rows, teacher, "dot", 0.7, of_teacher, present), equation, random(4, 3, 4))


def test_sharded_is_whole():
    teacher = random(3, 8, 5, seed=1)

    def of_rows(rows, shared, own, gather, psum):
        scores = scores_of_both(rows, list(jnp.asarray(teacher)[:, own]), "dot")
        return psum(jnp.sum(distill_kl(*scores, temperature=1.0))) / 8

    assert_sharded_is_whole(of_rows, tuple(random(3, 8, 5)))
