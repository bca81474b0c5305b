import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, cosine, random
from support.taught import assert_same_loss, torch_and_losses

from simcse_jax.objectives.margin_mse import margin_mse, margins


def loss(rows, teacher, similarity):
    own = (margins(x[0], x[1], x[2:], similarity) for x in (jnp.asarray(rows), jnp.asarray(teacher)))
    return jnp.mean(margin_mse(*own))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("negatives", [1, 2])
def test_is_sentence_transformers_loss(similarity, negatives):
    torch, losses = torch_and_losses()
    util = pytest.importorskip("sentence_transformers.util")
    function = util.pairwise_dot_score if similarity == "dot" else util.pairwise_cos_sim
    teacher = random(2 + negatives, 6, 9, seed=3)
    score = {"dot": np.dot, "cosine": cosine}[similarity]
    scores = [[score(a, b) for a, b in zip(teacher[0], others, strict=True)] for others in teacher[1:]]
    labels = torch.tensor(np.float32(scores).T)  # of the positive, then of each negative

    def peer(tensors):
        return losses.MarginMSELoss(None, function).compute_loss_from_embeddings(tensors, labels)

    assert_same_loss(lambda rows: loss(rows, teacher, similarity), peer, random(2 + negatives, 6, 5))


def test_value_and_gradient_are_the_equation_s():
    rows, teacher = random(3, 3, 4), random(3, 3, 2, seed=1)

    def equation(rows):
        found = 0.0
        for i in range(3):
            (a, p, n), (ta, tp, tn) = rows[:, i], np.float64(teacher[:, i])
            found += ((a @ p - a @ n) - (ta @ tp - ta @ tn)) ** 2 / 3
        return found

    assert float(loss(rows, teacher, "dot")) == pytest.approx(equation(np.float64(rows)), rel=1e-5)
    assert_gradient(lambda rows: loss(rows, teacher, "dot"), equation, rows)


def test_an_unknown_similarity_is_refused():
    with pytest.raises(ValueError, match="similarity is 'l2'; it must be cosine or dot"):
        loss(random(3, 2, 4), random(3, 2, 4), "l2")


def test_sharded_is_whole():
    teacher = random(3, 8, 5, seed=1)

    def of_rows(rows, shared, own, gather, psum):
        mine = jnp.asarray(teacher)[:, own]
        found = margin_mse(margins(rows[0], rows[1], rows[2][None], "dot"), margins(*mine[:2], mine[2:], "dot"))
        return psum(jnp.sum(found)) / 8

    assert_sharded_is_whole(of_rows, tuple(random(3, 8, 5)), devices=(2, 8))


def test_negatives_that_an_anchor_lacks_do_not_count():
    student, teacher = random(3, 4, 1)[..., 0], random(3, 4, 1, seed=1)[..., 0]
    there = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 1]], bool)
    expected = [np.mean((student - teacher)[there[:, row], row] ** 2) for row in range(4)]
    np.testing.assert_allclose(margin_mse(student, teacher, there), expected, rtol=1e-6)
