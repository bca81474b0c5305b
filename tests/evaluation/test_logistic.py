import jax
import numpy as np
import pytest
from support.later import later

from simcse_jax.evaluation import logistic

linear_model = later("sklearn.linear_model")

CHOICES = np.array([0.25, 8.0])


def made(classes: int, rows: int = 240, width: int = 12, scale: float = 1.0):
    """Overlapping classes, far from the origin, in features of different sizes."""
    generator = np.random.default_rng(classes)
    labels = np.arange(rows) % classes
    centres = generator.normal(size=(classes, width))
    inputs = centres[labels] + 1.5 * generator.normal(size=(rows, width))
    return scale * (inputs * np.geomspace(0.1, 3, width) + 5), labels, generator


def fitted(inputs, labels, mask, c):
    return linear_model.LogisticRegression(C=c, solver="newton-cholesky", tol=1e-10).fit(inputs[mask], labels[mask])


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_each_fit_predicts_what_scikit_learn_does(classes, scale):
    inputs, labels, generator = made(classes, scale=scale)
    masks = generator.uniform(size=(3, len(labels))) < [[0.9], [0.5], [0.3]]
    found = logistic.predict(inputs, labels, masks, 1 / (CHOICES * masks.sum(1, keepdims=True)))
    assert found.shape == (3, 2, len(labels))
    for own, mask in zip(found, masks, strict=True):
        for predicted, c in zip(own, CHOICES, strict=True):
            expected = fitted(inputs, labels, mask, c)
            logits = expected.decision_function(inputs)
            margin = np.abs(logits) if classes == 2 else np.ptp(np.sort(logits)[:, -2:], axis=1)
            clear = margin > 0.01  # the others could fall either way
            assert clear.mean() > 0.9
            np.testing.assert_array_equal(predicted[clear], expected.predict(inputs)[clear])
    assert np.any(found[0] != found[2]) and np.any(found[:, 0] != found[:, 1])  # masks and penalties count


def test_a_row_left_out_has_no_influence():
    inputs, labels, _ = made(2)
    mask = np.arange(len(labels)) < 150
    changed, other = inputs.copy(), labels.copy()
    changed[200:], other[200:] = 50, 1 - other[200:]
    both = [
        logistic.predict(x, y, mask[None], np.array([[0.01]]))[0, 0, :200]
        for x, y in ((inputs, labels), (changed, other))
    ]
    np.testing.assert_array_equal(*both)


def test_the_bias_is_not_penalized():
    labels = (np.arange(40) < 30).astype(int)
    inputs = 30 * np.random.default_rng(0).normal(size=(40, 3))
    found = logistic.predict(inputs, labels, np.ones((1, 40), bool), np.array([[1e4]]))
    assert found.tolist() == [[[1] * 40]]  # the weights are next to 0, the bias is that of the classes' shares


def test_fits_that_have_converged_wait_for_the_others():
    inputs, labels, _ = made(3)
    masks = np.ones((1, len(labels)), bool)
    together = logistic.predict(inputs, labels, masks, np.array([[100.0, 1e-6]]))
    alone = logistic.predict(inputs, labels, masks, np.array([[100.0]]))
    assert np.mean(together[0, 0] != alone[0, 0]) < 0.02
    assert np.mean(together[0, 1] == labels) > np.mean(together[0, 0] == labels)


def test_inputs_that_never_vary_are_fit_by_the_bias():
    labels = np.array([0, 1, 1, 1])
    found = logistic.predict(np.full((4, 3), 7.0), labels, np.ones((1, 4), bool), np.array([[0.1]]))
    assert found.tolist() == [[[1, 1, 1, 1]]]


def test_it_fits_where_jax_promotes_no_types():
    inputs, labels, _ = made(2)
    arguments = inputs, labels, np.ones((1, len(labels)), bool), np.full((1, 1), 0.01)
    with jax.numpy_dtype_promotion("strict"):
        strict = logistic.predict(*arguments)
    np.testing.assert_array_equal(strict, logistic.predict(*arguments))
