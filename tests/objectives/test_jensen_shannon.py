import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_gradient, assert_sharded_is_whole, random

from simcse_jax.objectives.jensen_shannon import jensen_shannon


def ours(local, sentences, mask, own=None):
    own = np.arange(len(sentences)) if own is None else own
    return jensen_shannon(local, mask, sentences, own, lambda x: x)


def lengths_to_mask(lengths, most):
    return np.int32(np.arange(most) < np.array(lengths)[:, None])


MASK = lengths_to_mask([3, 1, 2], 4)


def by_the_equation(local, sentences):
    """Token by token, as an estimate of a divergence: the mean over its own pairs less that over all others."""
    own, other = [], []
    for sentence, (features, mask) in enumerate(zip(local, MASK, strict=True)):
        for token in features[mask > 0]:
            for j, vector in enumerate(sentences):
                score = token @ vector
                (own if j == sentence else other).append(np.log1p(np.exp(-score if j == sentence else score)))
    return np.mean(own) + np.mean(other) - 2 * np.log(2)


def test_is_the_equation_and_so_is_its_gradient():
    local, sentences = random(3, 4, 5), random(3, 5, seed=1)
    np.testing.assert_allclose(ours(local, sentences, MASK), by_the_equation(local, sentences), rtol=1e-5)
    assert_gradient(lambda *x: ours(*x, MASK), by_the_equation, local, sentences)


def test_by_hand():
    # Features that say nothing score zero everywhere: the estimate of the mutual information is zero.
    assert float(ours(jnp.zeros((3, 4, 2)), random(3, 2), MASK)) == pytest.approx(0, abs=1e-6)
    # Each token finds its sentence and no other one: the largest estimate, 2 log 2.
    found = jnp.broadcast_to(100 * jnp.eye(3)[:, None], (3, 4, 3))
    assert float(ours(found, 2 * jnp.eye(3) - 1, MASK)) == pytest.approx(-2 * np.log(2), abs=1e-6)
    # A wrong token of the longest sentence costs a sixth of the mean over own pairs, since all have six tokens.
    wrong = found.at[0, 0].set(jnp.array([-100.0, 0, 0]))
    cost = float(ours(wrong, 2 * jnp.eye(3) - 1, MASK)) + 2 * np.log(2)
    assert cost == pytest.approx((100 + (100 + 100) / 2) / 6, rel=1e-4)


def test_is_the_released_code_in_pytorch_with_its_gradient():
    """`MutualInformationLoss` with JSD: all tokens of a batch in one matrix, zeros in place of other pairs."""
    torch = pytest.importorskip("torch")
    local, sentences = random(3, 4, 5), random(3, 5, seed=1)
    theirs = [torch.tensor(array, requires_grad=True) for array in (local, sentences)]
    lengths = MASK.sum(1)
    tokens = torch.cat([row[:length] for row, length in zip(theirs[0], lengths, strict=True)])
    own = torch.repeat_interleave(torch.eye(3), torch.tensor(lengths), 0)
    softplus, scores = torch.nn.functional.softplus, tokens @ theirs[1].T
    positive = (np.log(2) - softplus(-scores * own)).sum() / len(tokens)
    products = scores * (1 - own)
    negative = (softplus(-products) + products - np.log(2)).sum() / (len(tokens) * 2)
    (negative - positive).backward()
    value, gradients = jax.value_and_grad(lambda x: ours(*x, MASK))((jnp.array(local), jnp.array(sentences)))
    np.testing.assert_allclose(value, (negative - positive).detach(), rtol=1e-5)
    for found, expected in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(found, expected.grad, rtol=1e-5, atol=1e-6)


def test_sharded_is_whole():
    mask = lengths_to_mask([4, 1, 2, 3, 4, 4, 1, 2], 4)

    def loss(rows, shared, own, gather, psum):
        local, sentences = rows
        return jensen_shannon(local, jnp.asarray(mask)[own], gather(sentences), own, psum)

    assert_sharded_is_whole(loss, (random(8, 4, 5), random(8, 5, seed=1)), devices=(2, 4, 8))
