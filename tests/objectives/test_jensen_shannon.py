import numpy as np
from support.checks import random
from support.equations import assert_is_equation

from simcse_jax.objectives.jensen_shannon import jensen_shannon
from simcse_jax.objectives.negatives import Candidates


def lengths_to_mask(lengths):
    return np.int32(np.arange(4) < np.array(lengths)[:, None])


MASK = lengths_to_mask([3, 1, 2])


def ours(local, sentences):
    return jensen_shannon(local, MASK, sentences, np.arange(3), lambda x: x)


def by_the_equation(local, sentences):
    """As `MutualInformationLoss` with JSD of the authors: the mean over a token's own pairs less over all others."""
    own, other = [], []
    for sentence, (features, mask) in enumerate(zip(local, MASK, strict=True)):
        for token in features[mask > 0]:
            for j, vector in enumerate(sentences):
                score = token @ vector
                (own if j == sentence else other).append(np.log1p(np.exp(-score if j == sentence else score)))
    return np.mean(own) + np.mean(other) - 2 * np.log(2)


def test_value_and_gradient_are_the_equation_s():
    assert_is_equation(ours, by_the_equation, random(3, 4, 5), random(3, 5, seed=1))


def test_a_token_s_loss_is_the_mean_over_the_sentences_that_are_not_left_out():
    texts, pairs = np.array([[0, 1, 0]]), np.array([[0, 0], [1, 1], [0, 0]])  # one, two and one are left
    candidates = Candidates(texts=texts, anchors=texts, pairs=pairs)
    local, sentences = random(3, 4, 5), random(3, 5, seed=1)
    losses = []
    for row, (features, mask, left) in enumerate(zip(local, MASK, ([1], [0, 2], [1]), strict=True)):
        for scores in features[mask > 0] @ sentences.T:
            losses.append(np.log1p(np.exp(-scores[row])) + np.log1p(np.exp(scores[left])).mean() - 2 * np.log(2))
    found = jensen_shannon(local, MASK, sentences, np.arange(3), lambda x: x, candidates)
    np.testing.assert_allclose(found, np.mean(losses), rtol=1e-6)
