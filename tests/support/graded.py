"""Checks of objectives that rank graded pairs, by any similarity: (B, D), (B, D) to (B,)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.objectives.cosent import cosent
from simcse_jax.objectives.similarity import cosine
from support.checks import assert_sharded_is_whole, random

SCORES = np.float32([0.2, 3, 5, 3, 0, 4.4, 0.2, 1])  # two ties


def alone(x):
    return x


def loss(rows, scores, temperature=0.05, similarity=cosine):
    own = similarity(*rows)
    return cosent(own, scores, own, scores, alone, alone, temperature=temperature)


def peer_loss(name):
    """The loss of sentence-transformers and its gradients, as a function of embeddings and scores."""
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")

    def compute(rows, scores):
        first, second = (torch.tensor(x, requires_grad=True) for x in rows)
        value = getattr(losses, name)(None).compute_loss_from_embeddings([first, second], torch.tensor(scores))
        value.backward()
        return float(value.detach()), (first.grad.numpy(), second.grad.numpy())

    return compute


def assert_is_peer_s(ours, name, rows, scores):
    value, gradients = jax.jit(jax.value_and_grad(ours))(tuple(rows), scores)
    expected, theirs = peer_loss(name)(rows, scores)
    assert float(value) == pytest.approx(expected, rel=1e-5)
    for gradient, other in zip(gradients, theirs, strict=True):
        assert np.abs(other).max() > 1e-2
        np.testing.assert_allclose(gradient, other, atol=1e-5 * np.abs(other).max())


def _sharded(similarity):
    def loss(rows, shared, own, gather, psum):
        def gathered(x):
            return gather(x.T).T  # `gather` takes rows first

        pairs = jnp.stack([similarity(rows[0], rows[1]), rows[2][:, 0]])
        return cosent(*pairs, *gathered(pairs), psum, gathered, temperature=0.05)

    return loss


def assert_ranking_sharded_is_whole(similarity):
    """On 2, 4 and 8 devices, whose pairs are compared with those of all devices."""

    def of_embeddings(rows, shared, own, gather, psum):
        scores = jnp.asarray(SCORES)[own][:, None]
        return _sharded(similarity)((*rows, scores), shared, own, gather, psum)

    assert_sharded_is_whole(of_embeddings, tuple(random(2, 8, 6)), devices=(2, 4, 8))
