import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, random

from simcse_jax.objectives.contrastive_tension import contrastive_tension

IS_POSITIVE = np.arange(16) % 8 == 0


def mean(rows, is_positive):
    return jnp.mean(contrastive_tension(*rows, is_positive))


def test_is_sentence_transformers_loss_over_16():
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("sentence_transformers.sentence_transformer.losses.contrastive_tension")

    class Given(torch.nn.Module):
        """A model that returns the embeddings that it is given."""

        def forward(self, features):
            return {"sentence_embedding": features["x"]}

    rows = 0.7 * random(2, 16, 5)
    first, second = (torch.tensor(x, requires_grad=True) for x in rows)
    labels = torch.tensor(IS_POSITIVE, dtype=torch.float32)
    expected = peer.ContrastiveTensionLoss(Given())([{"x": first}, {"x": second}], labels) / 16
    expected.backward()
    value, gradient = jax.jit(jax.value_and_grad(mean))(tuple(rows), IS_POSITIVE)
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)
    for ours, theirs in zip(gradient, (first.grad, second.grad), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max().item())
        assert np.abs(ours).max() > 1e-2


def test_equal_encoders_have_the_same_gradient_on_positives():
    rows = random(16, 5)
    first, second = jax.jit(jax.grad(mean))((rows, rows), np.ones(16, bool))
    np.testing.assert_array_equal(first, second)
    others = np.roll(rows, 1, axis=0)
    first, second = jax.jit(jax.grad(mean))((rows, others), np.zeros(16, bool))
    assert np.abs(first - second).max() > 1e-2


def test_large_products_are_finite():
    losses = contrastive_tension(jnp.full((2, 1), 100.0), jnp.full((2, 1), 100.0), np.array([True, False]))
    np.testing.assert_allclose(losses, [0.0, 10_000.0])


def test_a_group_may_lie_on_several_devices():
    def loss(rows, shared, own, gather, psum):
        return psum(jnp.sum(contrastive_tension(*rows, own % 8 == 0))) / 16

    assert_sharded_is_whole(loss, tuple(0.7 * random(2, 16, 5)), devices=(2, 8))
