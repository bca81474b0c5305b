import jax
import numpy as np
import pytest
from support.later import later
from support.recorded import recorded

from simcse_jax.evaluation import logistic

linear_model = later("sklearn.linear_model")

CHOICES = np.array([0.25, 8.0])
CASES = [(2, 0.2), (3, 1.0), (6, 0.2)]  # classes, and the scale of the inputs


def made(classes: int, rows: int = 240, width: int = 12, scale: float = 1.0):
    """Overlapping classes, far from the origin, in features of different sizes; masks of rows."""
    generator = np.random.default_rng(classes)
    labels = np.arange(rows) % classes
    inputs = generator.normal(size=(classes, width))[labels] + 1.5 * generator.normal(size=(rows, width))
    masks = generator.uniform(size=(3, rows)) < [[0.9], [0.5], [0.3]]
    return scale * (inputs * np.geomspace(0.1, 3, width) + 5), labels, masks


def theirs() -> dict[str, np.ndarray]:
    """By classes: scikit-learn's, of each mask and penalty, and whether they are far from falling the other way."""
    found = {}
    for classes, scale in CASES:
        inputs, labels, masks = made(classes, scale=scale)
        predicted, margins = [], []
        for mask, c in ((mask, c) for mask in masks for c in CHOICES):
            model = linear_model.LogisticRegression(C=c, solver="newton-cholesky", tol=1e-10)
            logits = model.fit(inputs[mask], labels[mask]).decision_function(inputs)
            margins.append(np.abs(logits) if classes == 2 else np.ptp(np.sort(logits)[:, -2:], axis=1))
            predicted.append(model.predict(inputs))
        found[f"{classes}/predicted"] = np.reshape(predicted, (3, 2, -1)).astype(np.int8)
        found[f"{classes}/clear"] = np.reshape(margins, (3, 2, -1)) > 0.01
    return found


@pytest.mark.parametrize(("classes", "scale"), CASES)
def test_each_fit_predicts_what_scikit_learn_does(classes, scale):
    peer = recorded("logistic", theirs, "scikit-learn")
    inputs, labels, masks = made(classes, scale=scale)
    found = logistic.predict(inputs, labels, masks, 1 / (CHOICES * masks.sum(1, keepdims=True)))
    assert found.shape == (3, 2, len(labels))
    clear = peer[f"{classes}/clear"]
    assert clear.mean(axis=2).min() > 0.9
    np.testing.assert_array_equal(found[clear], peer[f"{classes}/predicted"][clear])
    assert np.any(found[0] != found[2]) and np.any(found[:, 0] != found[:, 1])  # masks and penalties count


def test_rows_left_out_have_no_influence_the_bias_no_penalty_and_converged_fits_wait():
    inputs, labels, _ = made(2)
    mask = (np.arange(len(labels)) < 150)[None]
    changed, other = inputs.copy(), labels.copy()
    changed[200:], other[200:] = 50, 1 - other[200:]
    one, same = (logistic.predict(x, y, mask, np.array([[0.01]])) for x, y in ((inputs, labels), (changed, other)))
    np.testing.assert_array_equal(one[0, 0, :200], same[0, 0, :200])
    labels = (np.arange(40) < 30).astype(int)
    inputs = 30 * np.random.default_rng(0).normal(size=(40, 3))
    with jax.numpy_dtype_promotion("strict"):
        found = logistic.predict(inputs, labels, np.ones((1, 40), bool), np.array([[1e4]]))
    assert found.tolist() == [[[1] * 40]]  # the weights are next to 0, the bias is that of the classes' shares
    labels = np.array([0, 1, 1, 1])
    found = logistic.predict(np.full((4, 3), 7.0), labels, np.ones((1, 4), bool), np.array([[0.1]]))
    assert found.tolist() == [[[1, 1, 1, 1]]]
    inputs, labels, _ = made(3)
    masks = np.ones((1, len(labels)), bool)
    together = logistic.predict(inputs, labels, masks, np.array([[100.0, 1e-6]]))
    assert np.mean(together[0, 0] != logistic.predict(inputs, labels, masks, np.array([[100.0]]))[0, 0]) < 0.02
    assert np.mean(together[0, 1] == labels) > np.mean(together[0, 0] == labels)


def test_fits_of_many_classes_are_solved_in_parts_that_memory_holds(monkeypatch):
    inputs, labels, masks = made(3)
    penalties = 1 / (CHOICES * masks.sum(1, keepdims=True))
    whole, fit, solved = logistic.predict(inputs, labels, masks, penalties), logistic._fit, []
    monkeypatch.setattr(logistic, "MOST_LOGITS", 2 * len(labels) * 3 * len(CHOICES))
    monkeypatch.setattr(logistic, "_fit", lambda *arrays: solved.append(len(arrays[-1])) or fit(*arrays))
    np.testing.assert_array_equal(logistic.predict(inputs, labels, masks, penalties), whole)
    assert solved == [2, 1]
