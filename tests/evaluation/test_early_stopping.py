import numpy as np
import pytest
from support import senteval_classifier

from simcse_jax.errors import UserError
from simcse_jax.evaluation import early_stopping

PENALTIES = (1e-5, 0.1, 3.0)
COUNT, WIDTH = 190, 100


def problem(classes: int):
    """Rows whose classes lie so close to one another that accuracy rises and falls."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, classes, COUNT)
    return generator.normal(size=(COUNT, WIDTH)) + 2 * np.eye(classes, WIDTH)[labels], labels


def masks(first: int):
    """The rows to train on and those held out; the last ten are neither."""
    numbers = np.arange(COUNT)
    held_out = (numbers >= first) & (numbers < first + 40)
    return ~held_out & (numbers < COUNT - 10), held_out


def compare(found, inputs, labels, classes, penalties, *rows, fast=False) -> list[int]:
    """Asserts that both have the same accuracies and classes; the numbers of rounds."""
    lengths = []
    for number, penalty in enumerate(penalties):
        predicted, accuracy, rounds = senteval_classifier.fit(inputs, labels, classes, penalty, *rows, fast=fast)
        assert found.accuracy[number] == pytest.approx(accuracy, abs=1e-12)
        np.testing.assert_array_equal(found.predicted[number], predicted)
        lengths.append(rounds)
    return lengths


@pytest.mark.parametrize("protocol", ["pytorch", "pytorch_fast"])
def test_each_classifier_is_that_of_pytorch(protocol):
    inputs, labels = problem(3)
    (one, held_out), (other, other_held_out) = masks(0), masks(40)
    other[:30] = False  # fewer batches than the first
    splits = [early_stopping.given(one, held_out), early_stopping.given(other, other_held_out)]
    splits.append(early_stopping.drawn(one))
    classifier = early_stopping.Classifier(inputs, labels, 3, splits, early_stopping.SETTINGS[protocol])
    rows = [(np.flatnonzero(one), np.flatnonzero(held_out)), (np.flatnonzero(other), np.flatnonzero(other_held_out))]
    rows.append((np.flatnonzero(one),))
    found = [classifier.fit(split, PENALTIES) for split in splits]
    pairs = zip(found, rows, strict=True)
    lengths = [compare(each, inputs, labels, 3, PENALTIES, *own, fast=protocol != "pytorch") for each, own in pairs]
    assert any(len(set(own)) > 1 for own in lengths)  # those of one program stop at different times
    assert any(len({tuple(row) for row in each.predicted}) > 2 for each in found)  # the penalty counts


def test_training_ends_after_the_last_round():
    place = np.linspace(-3, 3, 2060)
    labels, train = (place < 0).astype(int), np.arange(len(place)) % 34 == 0
    split = early_stopping.given(train, ~train)
    found = early_stopping.Classifier(place[:, None], labels, 2, [split]).fit(split, PENALTIES[:1])
    assert compare(found, place[:, None], labels, 2, PENALTIES[:1], *split[:2]) == [51]


def test_a_class_that_does_not_occur_has_its_weights():
    inputs, labels = problem(2)
    split = early_stopping.given(*masks(0))
    found = early_stopping.Classifier(inputs, labels, 6, [split]).fit(split, PENALTIES[:1])
    compare(found, inputs, labels, 6, PENALTIES[:1], *split[:2])
    other = early_stopping.Classifier(inputs, labels, 2, [split]).fit(split, PENALTIES[:1])
    assert not np.array_equal(found.predicted, other.predicted)


def test_embeddings_whose_products_are_too_large_are_refused():
    inputs, labels = problem(2)
    inputs[0, 0] = np.inf
    split = early_stopping.given(*masks(0))
    classifier = early_stopping.Classifier(inputs, labels, 2, [split])
    with pytest.raises(UserError, match="diverges"):
        classifier.fit(split, PENALTIES[:1])


@pytest.mark.parametrize("inputs, outputs", [(1, 2), (7, 3), (384, 6), (1536, 2)])
@pytest.mark.parametrize("seed", [0, 1111, 2**32 - 1])
def test_a_linear_layer_starts_as_in_pytorch(inputs, outputs, seed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    layer = torch.nn.Linear(inputs, outputs)
    weights, biases = early_stopping.linear(inputs, outputs, seed)
    np.testing.assert_array_equal(weights, layer.weight.detach().numpy(), strict=True)
    np.testing.assert_array_equal(biases, layer.bias.detach().numpy(), strict=True)


def test_orders_follow_one_another_as_in_numpy():
    np.random.seed(1111)
    expected = [np.random.permutation(20), *(np.random.permutation(19) for _ in range(3))]
    generator = np.random.RandomState(1111)
    generator.permutation(20)
    np.testing.assert_array_equal(early_stopping.orders(19, 3, generator), expected[1:])
