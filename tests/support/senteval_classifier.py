"""SentEval's PyTorch classifier, in PyTorch, from its definition: the peer of `evaluation.early_stopping`."""

import contextlib
import copy

import numpy as np
import pytest

from support.later import later

model_selection = later("sklearn.model_selection")
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)


@contextlib.contextmanager
def one_thread():
    """Tiny products are much slower with several threads, above all next to other work."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@one_thread()
def fit(inputs, labels, classes, penalty, train, held_out=None, fast=False):
    """The classes of all rows, the held-out accuracy and the rounds; without `held_out`, 5% of `train` are held out."""
    torch = pytest.importorskip("torch")
    np.random.seed(1111)
    torch.manual_seed(1111)
    model = torch.nn.Linear(inputs.shape[1], classes)
    optimizer = (torch.optim.RMSprop if fast else torch.optim.Adam)(model.parameters(), weight_decay=penalty)
    size, epochs, tenacity = (128, 2, 3) if fast else (64, 4, 5)
    if held_out is None:
        shuffled = train[np.random.permutation(len(train))]
        held_out, train = np.split(shuffled, [int(0.05 * len(train))])
    rows, targets = torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels)
    best, failures, rounds = -1, 0, 0
    while failures <= tenacity and rounds * epochs <= 200:
        for _ in range(epochs):
            order = train[np.random.permutation(len(train))]
            for start in range(0, len(order), size):
                batch = order[start : start + size]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(rows[batch]), targets[batch]).backward()
                optimizer.step()
        rounds += 1
        predicted = model(rows).argmax(1).numpy()
        accuracy = np.mean(predicted[held_out] == labels[held_out])
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model)
        else:
            failures += 1
    return kept(rows).argmax(1).numpy(), best, rounds


def protocol(inputs, labels, classes, train, test, dev=None, fast=False):
    """The penalty, chosen by folds of `train` or by `dev`, after the classes of `test` and development accuracy."""
    kfold = model_selection.StratifiedKFold(n_splits=5 if fast else 10, shuffle=True, random_state=1111)
    inner = [(train, dev)] if dev is not None else [(train[a], train[b]) for a, b in kfold.split(train, labels[train])]
    scores = []
    for penalty in PENALTIES:
        accuracies = [fit(inputs, labels, classes, penalty, *rows, fast=fast)[1] for rows in inner]
        scores.append(round(100 * np.mean(accuracies), 2))
    penalty = PENALTIES[int(np.argmax(scores))]
    predicted = fit(inputs, labels, classes, penalty, train, dev, fast)[0]
    return predicted[test], max(scores), penalty
