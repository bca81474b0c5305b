import itertools

import jax
import numpy as np
import pytest
from support.checks import cosine, random
from support.equations import assert_is_equation
from support.steps import alone, named

from simcse_jax.objectives.spread_out import SpreadOut


def of_batch(rows):
    return SpreadOut().loss(alone(named(rows)))


def equation(rows):
    return sum(np.mean([cosine(x, y) ** 2 for x, y in itertools.permutations(view, 2)]) for view in rows)


def test_value_and_gradient_are_the_equation_s():
    assert_is_equation(of_batch, equation, random(2, 5, 4))


def test_a_single_sentence_and_a_vector_of_zeros_have_finite_gradients():
    assert float(of_batch(random(2, 1, 4))) == pytest.approx(0, abs=1e-6)
    rows = random(2, 3, 4)
    rows[0, 1] = 0
    value, gradient = jax.jit(jax.value_and_grad(of_batch))(rows)
    assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.mark.slow
def test_it_is_the_second_moment_of_sentence_transformers():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: requirements-peers.txt")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses", reason="requirements-peers.txt")
    theirs = losses.GlobalOrthogonalRegularizationLoss(None, mean_weight=0.0, aggregation="sum")
    rows = random(2, 6, 4) + 1  # cosines so high that their floors do nothing
    views = torch.tensor(rows, requires_grad=True)
    value = theirs.compute_loss_from_embeddings(list(views))["gor_second_moment"]
    value.backward()
    ours, gradient = jax.value_and_grad(of_batch)(rows)
    assert float(ours) == pytest.approx(value.item() + 2 / rows.shape[2], rel=1e-5)  # less the floors
    np.testing.assert_allclose(gradient, views.grad.numpy(), atol=1e-6)
