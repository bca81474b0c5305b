import numpy as np
import pytest
from support import senteval_classifier
from support.later import later
from support.senteval import WORDS, write, write_all

from simcse_jax.errors import UserError
from simcse_jax.evaluation import logistic, transfer, transfer_files

linear_model, metrics, model_selection = map(
    later, ("sklearn.linear_model", "sklearn.metrics", "sklearn.model_selection")
)

VECTORS = dict(zip(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 6)), strict=True))


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Sentences of a random label lie near the boundary: no fit may stop short of the minimum."""
    monkeypatch.setattr(logistic, "TOLERANCE", 1e-10)


def encode(sentences):
    """Adds up random vectors of words, weighted by their places, and is asked for no sentence twice."""
    assert len(set(sentences)) == len(sentences)
    return np.array([sum((VECTORS[w] / n for n, w in enumerate(s.split(), 1)), np.zeros(6)) for s in sentences])


VECTORS["?"] = np.zeros(6)


@pytest.mark.parametrize("labels", ["0110" * 13, "2100" * 17, "ba" * 10 + "aaac" * 12])
def test_folds_are_those_of_scikit_learn(labels):
    labels = np.random.default_rng(1).permutation(list(labels))
    folds = transfer.stratified_folds(labels)
    peer = model_selection.StratifiedKFold(n_splits=10, shuffle=True, random_state=1111).split(labels, labels)
    for number, (_, test) in enumerate(peer):
        np.testing.assert_array_equal(np.flatnonzero(folds == number), test)


def expected(inputs, labels, train, test, dev=None):
    """SentEval's loops with scikit-learn: the predictions for `test`, and the development accuracy."""

    def fit(c, rows):
        return linear_model.LogisticRegression(C=c, solver="newton-cholesky", tol=1e-10).fit(inputs[rows], labels[rows])

    kfold = model_selection.StratifiedKFold(n_splits=10, shuffle=True, random_state=1111)
    inner = [(train, dev)] if dev is not None else [(train[a], train[b]) for a, b in kfold.split(train, labels[train])]
    scores = []
    for c in (2.0**power for power in range(-2, 4)):
        found = [fit(c, a).score(inputs[b], labels[b]) for a, b in inner]
        scores.append(round(100 * np.mean(found), 2))
    return fit(2.0 ** (int(np.argmax(scores)) - 2), train).predict(inputs[test]), max(scores)


def prepared(found, folds=10):
    """The inputs of a task, the rows of its outer folds, and those of its development set."""
    rows = {split: np.arange(len(found.labels))[part] for split, part in found.splits.items()}
    side = [np.concatenate([encode([s]) for s in sentences]) for sentences in (found.first, found.second) if sentences]
    inputs = side[0] if len(side) == 1 else np.c_[np.abs(side[0] - side[1]), side[0] * side[1]]
    if "test" in rows:
        splits = [(rows["train"], rows["test"])]
    else:
        splits = model_selection.StratifiedKFold(n_splits=folds, shuffle=True, random_state=1111).split(
            inputs, found.labels
        )
    return inputs, list(splits), rows.get("dev")


@pytest.mark.parametrize("task", ["MPQA", "SST2", "TREC", "MRPC"])
def test_each_protocol_is_sent_evals(tmp_path, task):
    found = transfer_files.read_task(write_all(tmp_path), task)
    result = transfer.evaluate(encode, {task: found})[task]
    inputs, splits, dev = prepared(found)
    accuracies, development = [], []
    for train, test in splits:
        predicted, score = expected(inputs, found.labels, train, test, dev)
        accuracies.append(round(100 * np.mean(predicted == found.labels[test]), 2))
        development.append(score)
        if task == "MRPC":
            assert result["f1"] == pytest.approx(100 * metrics.f1_score(found.labels[test], predicted), abs=0.01)
    assert [fold["accuracy"] for fold in result["folds"]] == pytest.approx(accuracies)
    assert result["accuracy"] == pytest.approx(np.mean(accuracies), abs=0.01)
    assert result["dev_accuracy"] == pytest.approx(np.mean(development), abs=0.01)
    assert result["examples"] == (55 if task == "MPQA" else 40)
    assert ("f1" in result) == (task == "MRPC")


PYTORCH = [("SST2", "pytorch"), ("TREC", "pytorch_fast")]
MORE = [
    ("TREC", "pytorch"),
    ("MRPC", "pytorch"),
    ("MPQA", "pytorch"),
    ("SST2", "pytorch_fast"),
    ("MPQA", "pytorch_fast"),
]


@pytest.mark.optimized
@pytest.mark.parametrize(
    ("task", "protocol"), [*PYTORCH, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)]
)
def test_the_papers_protocol_is_that_of_sent_evals_pytorch_classifier(tmp_path, task, protocol):
    found = transfer_files.read_task(write_all(tmp_path), task)
    result = transfer.evaluate(encode, {task: found}, protocol=protocol)[task]
    fast = protocol == "pytorch_fast"
    inputs, splits, dev = prepared(found, folds=5 if fast else 10)
    classes = 6 if task == "TREC" else 2
    for fold, (train, test) in zip(result["folds"], splits, strict=True):
        predicted, score, penalty = senteval_classifier.protocol(inputs, found.labels, classes, train, test, dev, fast)
        accuracy = round(100 * np.mean(predicted == found.labels[test]), 2)
        assert (fold["accuracy"], fold["dev_accuracy"]) == pytest.approx((accuracy, score))
        assert fold["regularization"] == pytest.approx(penalty)
        if task == "MRPC":
            assert result["f1"] == pytest.approx(100 * metrics.f1_score(found.labels[test], predicted), abs=0.01)


def test_tasks_that_are_too_small_for_the_papers_protocol_are_refused(tmp_path):
    for label, file in (("pos", "good"), ("neg", "bad")):
        write(tmp_path / "CR" / f"custrev.{label}", [file] * 11)
    tasks, _ = transfer_files.read(str(tmp_path), ["CR"])
    transfer.Transfer(tasks)
    with pytest.raises(UserError, match=r"CR has 19 sentences to train a classifier on.*needs 20 or more"):
        transfer.Transfer(tasks, transfer_protocol="pytorch")


def test_missing_tasks_are_named_and_leave_no_average(tmp_path):
    write_all(tmp_path)
    (tmp_path / "TREC").rename(tmp_path / "elsewhere")
    present, missing = transfer_files.read(str(tmp_path), ["TREC", "MRPC", "SST2"])
    assert (list(present), missing) == (["MRPC", "SST2"], ["TREC"])
    results = {"SST2": {"accuracy": 80.0}, "MRPC": {"accuracy": 70.0, "f1": 75.5}}
    assert transfer.average(results, missing) == {}
    assert transfer.average(results, []) == {"transfer_average": 75.0}
    head, _, figures = transfer.table(results, missing).splitlines()
    assert [cell.strip() for cell in head.split("|")] == ["SST", "TREC", "MRPC acc/F1", "Avg."]
    assert [cell.strip() for cell in figures.split("|")] == ["80.00", "-", "70.00/75.50", "-"]


def test_embeddings_that_are_not_finite_are_refused(tmp_path):
    task = transfer_files.read_task(write_all(tmp_path), "MR")
    with pytest.raises(UserError, match="not finite"):
        transfer.evaluate(lambda sentences: np.full((len(sentences), 2), np.nan), {"MR": task})
