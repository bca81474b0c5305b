import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from support.checks import assert_gradient, assert_sharded_is_whole, cosine, random
from support.steps import alone

from simcse_jax.objectives import info_nce as module
from simcse_jax.objectives.negatives import Candidates

info_nce = jax.jit(module.info_nce, static_argnames="similarity")


def of_views(anchors, positives, *hard_negatives, symmetric=True, **fields):
    """The objective's mean on a single device that has the whole batch."""
    views = {"anchor": anchors, "positive": positives}
    views |= {"hard_negatives": jnp.stack(hard_negatives)} if hard_negatives else {}
    usual = {"hard_negative_weight": 1.0, "similarity": "cosine"}
    return module.OBJECTIVE.loss(alone(views), symmetric=symmetric, **(usual | fields))


def by_the_equation(anchors, positives, negatives, temperature, alpha=1.0, similarity=cosine):
    """SimCSE, equation 8, term by term in float64; `negatives` is a list of kinds."""
    anchors, positives = np.float64(anchors), np.float64(positives)
    losses = []
    for i, anchor in enumerate(anchors):
        total = 0.0
        for j in range(len(positives)):
            total += np.exp(similarity(anchor, positives[j]) / temperature)
            for kind in negatives:
                total += alpha ** (i == j) * np.exp(similarity(anchor, np.float64(kind[j])) / temperature)
        losses.append(-np.log(np.exp(similarity(anchor, positives[i]) / temperature) / total))
    return np.array(losses)


@pytest.fixture
def embeddings():
    return random(3, 6, 5)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_is_equation_8(embeddings, temperature, alpha):
    anchors, positives, negatives = embeddings
    ours = info_nce(*embeddings, np.arange(6), temperature=temperature, hard_negative_weight=alpha)
    expected = by_the_equation(anchors, positives, [negatives], temperature, alpha)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    pairs = info_nce(anchors, positives, None, np.arange(6), temperature=temperature)
    np.testing.assert_allclose(pairs, by_the_equation(anchors, positives, [], temperature), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("similarity", "function"), [("cosine", cosine), ("dot", np.dot)])
def test_takes_several_kinds_of_negatives_and_either_similarity(embeddings, similarity, function):
    kinds = random(2, 6, 5, seed=1)
    arguments = {"temperature": 0.5, "hard_negative_weight": 3.0, "similarity": similarity}
    ours = info_nce(*embeddings[:2], kinds, np.arange(6), **arguments)
    expected = by_the_equation(*embeddings[:2], kinds, 0.5, 3.0, function)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    one_kind = info_nce(*embeddings[:2], kinds[:1], np.arange(6), **arguments)
    np.testing.assert_array_equal(one_kind, info_nce(*embeddings[:2], kinds[0], np.arange(6), **arguments))


def test_by_hand():
    # Two orthogonal examples, each its own positive: cosines 1 and 0, so −log(e / (e + 1)).
    pair = jnp.array([[2.0, 0.0], [0.0, 3.0]])
    expected = np.log(1 + np.exp(-1))
    np.testing.assert_allclose(info_nce(pair, pair, None, jnp.arange(2), temperature=1.0), expected, rtol=1e-6)
    # Hard negatives equal to the anchors: the own one adds α e, the other one 1.
    losses = info_nce(pair, pair, pair, jnp.arange(2), temperature=1.0, hard_negative_weight=2.0)
    np.testing.assert_allclose(losses, np.log((3 * np.e + 2) / np.e), rtol=1e-6)
    # A second kind, the anchors in reverse: the own one adds α, the other one e. e + 1 + 2 e + 1 + 2 + e = 4 e + 4.
    kinds = jnp.stack([pair, pair[::-1]])
    losses = info_nce(pair, pair, kinds, jnp.arange(2), temperature=1.0, hard_negative_weight=2.0)
    np.testing.assert_allclose(losses, np.log((4 * np.e + 4) / np.e), rtol=1e-6)
    # Dot products are 4 and 9 with the own one, 0 with the other: at τ = 2, log(1 + e^−2) and log(1 + e^−4.5).
    losses = info_nce(pair, pair, None, jnp.arange(2), temperature=2.0, similarity="dot")
    np.testing.assert_allclose(losses, np.log1p(np.exp([-2.0, -4.5])), rtol=1e-5)


def test_both_directions_by_hand():
    # Anchors x, y; positives x, x (unit vectors). Cosines, one row per anchor: (1, 1), (0, 0).
    # Forward: log 2 and log 2. Backward, columns: both (1, 0), positive 1 and 0: log(1 + e^−1) and log(1 + e).
    anchors, positives = jnp.eye(2), jnp.array([[1.0, 0.0], [1.0, 0.0]])
    expected = [(np.log(2) + np.log1p(np.exp(-1))) / 2, (np.log(2) + np.log1p(np.exp(1))) / 2]
    np.testing.assert_allclose(of_views(anchors, positives, temperature=1.0), np.mean(expected), rtol=1e-6)


@pytest.mark.parametrize(("similarity", "function"), [("cosine", cosine), ("dot", np.dot)])
def test_both_directions_are_the_equation_twice(embeddings, similarity, function):
    anchors, positives, negatives = embeddings
    fields = {"temperature": 0.5, "hard_negative_weight": 2.0, "similarity": similarity}
    ours = jax.jit(lambda views: of_views(*views, **fields))(embeddings)
    forward = by_the_equation(anchors, positives, [negatives], 0.5, 2.0, function)
    backward = by_the_equation(positives, anchors, [], 0.5, similarity=function)
    np.testing.assert_allclose(ours, np.mean(forward + backward) / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_hard_negatives_may_be_left_to_other_objectives(embeddings, symmetric):
    anchors, positives, negatives = embeddings
    found = of_views(anchors, positives, negatives, symmetric=symmetric, negatives="positives", temperature=0.5)
    losses = [by_the_equation(anchors, positives, [], 0.5), by_the_equation(positives, anchors, [], 0.5)]
    np.testing.assert_allclose(found, np.mean(losses[: 1 + symmetric]), rtol=1e-5)


def test_a_weight_of_zero_leaves_the_own_hard_negative_out(embeddings):
    def total(x, alpha):
        return jnp.sum(info_nce(*x, jnp.arange(6), temperature=0.05, hard_negative_weight=alpha))

    ours = info_nce(*embeddings, np.arange(6), temperature=0.05, hard_negative_weight=0.0)
    expected = by_the_equation(*embeddings[:2], embeddings[2:], 0.05, 0.0)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    assert np.all(np.isfinite(jax.jit(jax.grad(total))(embeddings, 0.0)))


def there(present):
    """All positives, and these hard negatives."""
    return Candidates(np.concatenate([np.ones((1, 6), bool), present]))


PRESENT = np.array([[True, False, True, False, False, True], [True, False, True, True, False, False]])  # of two kinds


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_negatives_that_are_not_there_are_no_terms_of_the_sums(embeddings, alpha):
    kinds = random(2, 6, 5, seed=1)
    kinds[~PRESENT] = 0.0  # whatever stands there
    arguments = {"temperature": 0.05, "hard_negative_weight": alpha}
    anchors, positives = np.float64(embeddings[:2])
    expected = []
    for i, anchor in enumerate(anchors):
        terms = [np.exp(cosine(anchor, positive) / 0.05) for positive in positives]
        for kind, own in zip(np.float64(kinds), PRESENT, strict=True):
            terms += [alpha ** (i == j) * np.exp(cosine(anchor, kind[j]) / 0.05) for j in np.flatnonzero(own)]
        expected.append(np.log(sum(terms) / terms[i]))
    ours = info_nce(*embeddings[:2], kinds, np.arange(6), candidates=there(PRESENT), **arguments)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    whole = info_nce(*embeddings[:2], kinds, np.arange(6), **arguments)
    np.testing.assert_array_equal(
        info_nce(*embeddings[:2], kinds, np.arange(6), candidates=there(np.ones_like(PRESENT)), **arguments), whole
    )
    none = info_nce(*embeddings[:2], kinds, np.arange(6), candidates=there(np.zeros_like(PRESENT)), **arguments)
    without = info_nce(*embeddings[:2], None, np.arange(6), temperature=0.05)
    np.testing.assert_allclose(none, without, rtol=1e-6)
    gradient = jax.grad(
        lambda x: jnp.sum(info_nce(*embeddings[:2], x, np.arange(6), candidates=there(PRESENT), **arguments))
    )
    found = np.asarray(jax.jit(gradient)(random(2, 6, 5, seed=1)))
    assert np.isfinite(found).all() and (found[~PRESENT] == 0).all() and (found[PRESENT] != 0).any()


def test_local_rows_find_their_own_positives_in_a_larger_batch(embeddings):
    whole = info_nce(*embeddings, np.arange(6), temperature=0.05)
    part = info_nce(embeddings[0, 4:], *embeddings[1:], np.array([4, 5]), temperature=0.05)
    np.testing.assert_allclose(part, whole[4:], rtol=1e-5)


def test_gradient(embeddings):
    def total(x):
        return jnp.sum(info_nce(*x, jnp.arange(6), temperature=0.5, hard_negative_weight=2.0))

    check_grads(jax.jit(total), (jnp.asarray(embeddings),), order=1, modes=["rev"], atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(("similarity", "function"), [("cosine", cosine), ("dot", np.dot)])
def test_gradient_of_both_directions(similarity, function):
    def ours(x):
        return 3 * of_views(*x, temperature=0.5, hard_negative_weight=2.0, similarity=similarity)

    def equation(x):
        forward = by_the_equation(x[0], x[1], x[2:], 0.5, 2.0, function)
        return np.sum(forward + by_the_equation(x[1], x[0], [], 0.5, similarity=function)) / 2

    assert_gradient(ours, equation, random(4, 3, 2))


@pytest.mark.parametrize("block", [2**22, 48])  # of 8 × 24 similarities: all at once, or two rows at a time
def test_sharded_is_whole(monkeypatch, block):
    monkeypatch.setattr("simcse_jax.objectives.similarity.SIMILARITIES", block)

    def loss(x, shared, own, gather, psum):
        views = {"anchor": x[:, 0], "positive": x[:, 1], "hard_negatives": jnp.moveaxis(x[:, 2:], 1, 0)}
        several = lambda rows: jnp.moveaxis(gather(jnp.moveaxis(rows, 1, 0)), 0, 1)  # noqa: E731
        embedded = dataclasses.replace(alone(views), own=own, gather=several, psum=psum)
        fields = {"temperature": 0.5, "hard_negative_weight": 2.0, "similarity": "cosine"}
        return module.OBJECTIVE.loss(embedded, symmetric=True, **fields)

    assert_sharded_is_whole(loss, random(8, 4, 5))


def test_a_zero_embedding_has_a_finite_gradient():
    def total(x):
        return jnp.sum(info_nce(x, x, None, jnp.arange(2), temperature=0.05))

    assert np.all(np.isfinite(jax.jit(jax.grad(total))(jnp.array([[0.0, 0.0], [1.0, 2.0]]))))


def consert(first, second, temperature):
    """ConSERT's loss in PyTorch, as its `forward` in `sentence_transformers/losses/AdvCLSoftmaxLoss.py` builds it."""
    import torch

    first, second = (torch.nn.functional.normalize(x, dim=1) for x in (first, second))
    large, labels = 1e9 * torch.eye(len(first), dtype=first.dtype), torch.arange(len(first))
    one_two, one_one, two_two = first @ second.T, first @ first.T, second @ second.T
    losses = []
    for across, within in ((one_two, one_one), (one_two.T, two_two)):
        logits = torch.cat([across / temperature, within / temperature - large], dim=1)
        losses.append(torch.nn.functional.cross_entropy(logits, labels))
    return 0.15 * (losses[0] + losses[1])


def test_negatives_of_both_views_are_consert_s_loss_with_weight_03():
    torch = pytest.importorskip("torch")
    first, second = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in random(2, 6, 5))
    expected = consert(first, second, 0.1)
    expected.backward()

    def ours(x):
        return 0.3 * of_views(*x, temperature=0.1, negatives="both")

    value, gradient = jax.jit(jax.value_and_grad(ours))(random(2, 6, 5))
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-6)
    np.testing.assert_allclose(gradient[0], first.grad, atol=1e-6)
    np.testing.assert_allclose(gradient[1], second.grad, atol=1e-6)
    assert np.abs(gradient).max() > 1e-2


def test_negatives_of_both_views_are_all_anchors_as_hard_negatives_without_the_own_one(embeddings):
    anchors, positives, _ = embeddings
    fields = {"temperature": 0.1, "similarity": "dot", "negatives": "both"}
    expected = by_the_equation(anchors, positives, [anchors], 0.1, 0.0, np.dot)
    one = of_views(anchors, positives, symmetric=False, **fields)
    np.testing.assert_allclose(one, np.mean(expected), rtol=1e-4, atol=1e-5)
    other = by_the_equation(positives, anchors, [positives], 0.1, 0.0, np.dot)
    both = of_views(anchors, positives, **fields)
    np.testing.assert_allclose(both, np.mean(expected + other) / 2, rtol=1e-4, atol=1e-5)


def test_negatives_of_both_views_are_the_same_on_several_devices():
    def loss(rows, shared, own, gather, psum):
        several = lambda views: jnp.stack([gather(view) for view in views])  # noqa: E731
        embedded = alone(dict(zip(("anchor", "positive"), rows, strict=True)))
        embedded = dataclasses.replace(embedded, own=own, gather=several, psum=psum)
        fields = {"temperature": 0.1, "hard_negative_weight": 1.0, "similarity": "cosine"}
        return module.OBJECTIVE.loss(embedded, symmetric=True, negatives="both", **fields)

    assert_sharded_is_whole(loss, tuple(random(2, 8, 5)), devices=(2, 4))
