"""The losses of sentence-transformers that take a teacher, on fixed embeddings."""

import jax
import numpy as np
import pytest


def torch_and_losses():
    return pytest.importorskip("torch"), pytest.importorskip("sentence_transformers.sentence_transformer.losses")


def given(torch):
    """A model that returns the embeddings that it is given."""

    class Given(torch.nn.Module):
        def forward(self, features):
            return dict(features)

    return Given()


def assert_same_loss(ours, peer, rows):
    """Value and gradients of `ours(rows)` are those of `peer(tensors)`; `rows` is (V, B, D)."""
    torch, _ = torch_and_losses()
    tensors = [torch.tensor(x, requires_grad=True) for x in rows]
    expected = peer(tensors)
    expected.backward()
    value, gradients = jax.jit(jax.value_and_grad(ours))(rows)
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)
    theirs = np.stack([tensor.grad.numpy() for tensor in tensors])
    assert np.abs(theirs).max() > 1e-3
    np.testing.assert_allclose(gradients, theirs, atol=1e-5 * np.abs(theirs).max())
