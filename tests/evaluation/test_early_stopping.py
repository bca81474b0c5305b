import numpy as np
import pytest
from support import senteval_classifier
from support.data import raises
from support.recorded import recorded

from simcse_jax.evaluation import early_stopping

PENALTIES = (1e-5, 0.1, 3.0)
COUNT, WIDTH = 190, 100
LAYERS = [(*sizes, seed) for sizes in ((1, 2), (7, 3)) for seed in (0, 1111, 2**32 - 1)] + [(384, 6, 1111)]


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


def cases() -> dict[str, tuple]:
    """Inputs, labels, the number of classes, penalties, and masks of splits; those with one mask draw the other."""
    inputs, labels = problem(3)
    (one, held_out), (other, other_held_out) = masks(0), masks(40)
    other[:30] = False  # fewer batches than the first
    protocol = (inputs, labels, 3, PENALTIES, [(one, held_out), (other, other_held_out), (one,)])
    line = np.linspace(-3, 3, 2060)
    train = np.arange(len(line)) % 34 == 0
    long = (line[:, None], (line < 0).astype(int), 2, PENALTIES[:1], [(train, ~train)])
    rare = (*problem(2), 6, PENALTIES[:1], [masks(0)])
    return {"pytorch": protocol, "pytorch_fast": protocol, "long": long, "rare": rare}


def theirs() -> dict[str, np.ndarray]:
    """Of each case and split: the classes of all rows, the accuracies and the numbers of rounds, by penalty."""
    import torch

    found = {}
    for name, (inputs, labels, classes, penalties, splits) in cases().items():
        for number, split in enumerate(splits):
            rows = [np.flatnonzero(mask) for mask in split]
            more = {"fast": name == "pytorch_fast"}
            fits = [senteval_classifier.fit(inputs, labels, classes, p, *rows, **more) for p in penalties]
            for field, values in zip(("predicted", "accuracy", "rounds"), zip(*fits, strict=True), strict=True):
                found[f"{name}/{number}/{field}"] = np.stack(values).astype(float if field == "accuracy" else np.int16)
    for inputs, outputs, seed in LAYERS:
        torch.manual_seed(seed)
        layer = torch.nn.Linear(inputs, outputs)
        found[f"weights/{inputs}/{outputs}/{seed}"] = layer.weight.detach().numpy()
        found[f"biases/{inputs}/{outputs}/{seed}"] = layer.bias.detach().numpy()
    return found


@pytest.fixture(scope="module")
def peer():
    return recorded("early_stopping", theirs, "torch")


@pytest.mark.parametrize("name", ["pytorch", "pytorch_fast", "long", "rare"])
def test_each_classifier_is_that_of_pytorch(name, peer):
    inputs, labels, classes, penalties, splits = cases()[name]
    splits = [
        early_stopping.masked_split(*each) if len(each) > 1 else early_stopping.random_split(*each) for each in splits
    ]
    settings = early_stopping.SETTINGS[name if name in early_stopping.SETTINGS else "pytorch"]
    classifier = early_stopping.Classifier(inputs, labels, classes, splits, settings)
    found = [classifier.fit(split, penalties) for split in splits]
    rounds = [peer[f"{name}/{number}/rounds"].tolist() for number in range(len(splits))]
    for number, each in enumerate(found):
        assert each.accuracy == pytest.approx(peer[f"{name}/{number}/accuracy"], abs=1e-12)
        np.testing.assert_array_equal(each.predicted, peer[f"{name}/{number}/predicted"])
    if name == "long":
        assert rounds == [[51]]  # training ends after the last one
    elif name == "rare":  # classes that do not occur have their weights
        other = early_stopping.Classifier(inputs, labels, 2, splits).fit(splits[0], penalties)
        assert not np.array_equal(found[0].predicted, other.predicted)
    else:
        assert any(len(set(own)) > 1 for own in rounds)  # those of one program stop at different times
        assert any(len({tuple(row) for row in each.predicted}) > 2 for each in found)  # the penalty counts


def test_a_linear_layer_starts_as_in_pytorch_and_products_that_are_too_large_are_refused(peer):
    inputs, labels = problem(2)
    inputs[0, 0] = np.inf
    split = early_stopping.masked_split(*masks(0))
    raises("diverges", early_stopping.Classifier(inputs, labels, 2, [split]).fit, split, PENALTIES[:1])
    for inputs, outputs, seed in LAYERS:
        weights, biases = early_stopping.linear(inputs, outputs, seed)
        np.testing.assert_array_equal(weights, peer[f"weights/{inputs}/{outputs}/{seed}"], strict=True)
        np.testing.assert_array_equal(biases, peer[f"biases/{inputs}/{outputs}/{seed}"], strict=True)
