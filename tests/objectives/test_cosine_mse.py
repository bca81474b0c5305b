import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, cosine, random

from simcse_jax.objectives.cosine_mse import cosine_mse

SCORES = np.float32([0, 0.2, 1, 0.5, 0.5, 0.9, 0.1, 0.3])


def test_is_sentence_transformers_loss():
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    rows = random(2, 8, 6)
    first, second = (torch.tensor(x, requires_grad=True) for x in rows)
    expected = losses.CosineSimilarityLoss(None).compute_loss_from_embeddings([first, second], torch.tensor(SCORES))
    expected.backward()
    value, gradients = jax.value_and_grad(lambda rows: jnp.mean(cosine_mse(*rows, SCORES)))(tuple(rows))
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)
    for ours, theirs in zip(gradients, (first.grad.numpy(), second.grad.numpy()), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


def test_value_and_gradient_are_the_equation_s():
    rows = random(2, 3, 4)

    def equation(rows):
        pairs = zip(*np.float64(rows), SCORES[:3], strict=True)
        return sum((cosine(x, y) - np.float64(score)) ** 2 for x, y, score in pairs)

    def ours(rows):
        return jnp.sum(cosine_mse(*rows, SCORES[:3]))

    assert float(ours(rows)) == pytest.approx(equation(rows), rel=1e-5)
    assert_gradient(ours, equation, rows)


def test_sharded_is_whole():
    def loss(rows, shared, own, gather, psum):
        return psum(jnp.sum(cosine_mse(*rows, jnp.asarray(SCORES)[own]))) / 8

    assert_sharded_is_whole(loss, tuple(random(2, 8, 6)), devices=(2, 8))
