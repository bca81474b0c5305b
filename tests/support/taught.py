"""The losses of sentence-transformers that take a teacher, on fixed embeddings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.data.scores import read_candidates
from simcse_jax.objectives.candidates import candidate_scores
from support.checks import cosine, random


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


def scores_of_both(rows, teacher, similarity):
    """The student's and the teacher's scores of (V, B, D) embeddings: anchors, positives, hard negatives."""
    return tuple(candidate_scores(x[0], jnp.stack(list(x[1:])), similarity) for x in (rows, teacher))


def assert_same_loss_of_scores(ours, make_peer, similarity, negatives, margins=False):
    """As `assert_same_loss`, for `ours(rows, teacher)` and a loss of labels: a teacher's scores of the candidates.

    With `margins`, the labels are their differences, and `ours(rows, scores)` takes what is read of these, (K, B).

    `make_peer(losses, function)` makes it, of the module of losses and the function of similarity.
    """
    torch, losses = torch_and_losses()
    util = pytest.importorskip("sentence_transformers.util")
    function, score = {"dot": (util.pairwise_dot_score, np.dot), "cosine": (util.pairwise_cos_sim, cosine)}[similarity]
    teacher = random(2 + negatives, 6, 9, seed=3)
    scores = [[score(a, b) for a, b in zip(teacher[0], others, strict=True)] for others in teacher[1:]]
    labels = np.float32(scores).T  # of the positive, then of each negative
    if margins:
        labels = labels[:, :1] - labels[:, 1:]
        teacher = np.float32([read_candidates([(list(row), "here")], 1 + negatives) for row in labels.tolist()]).T
    labels = torch.tensor(labels)
    peer = make_peer(losses, function)
    rows = random(2 + negatives, 6, 5)
    assert_same_loss(lambda rows: ours(rows, teacher), lambda x: peer.compute_loss_from_embeddings(x, labels), rows)
