import numpy as np
import pytest
from support import senteval_classifier
from support.data import raises
from support.later import later
from support.recorded import recorded
from support.senteval import WORDS, write, write_all

from simcse_jax.evaluation import logistic, transfer, transfer_files

linear_model, metrics, model_selection = (later(f"sklearn.{n}") for n in ("linear_model", "metrics", "model_selection"))

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


def test_folds_are_those_of_scikit_learn():
    texts = ["0110" * 13, "2100" * 17, "ba" * 10 + "aaac" * 12]
    every = [np.random.default_rng(1).permutation(list(text)) for text in texts]
    kfold = lambda: model_selection.StratifiedKFold(n_splits=10, shuffle=True, random_state=1111)  # noqa: E731

    def folds() -> dict[str, np.ndarray]:
        found = {}
        for text, labels in zip(texts, every, strict=True):
            found[text] = np.empty(len(labels), np.int8)
            for number, (_, test) in enumerate(kfold().split(labels, labels)):
                found[text][test] = number
        return found

    for labels, peer in zip(every, recorded("folds", folds, "scikit-learn").values(), strict=True):
        np.testing.assert_array_equal(transfer.stratified_folds(labels), peer)


def expected(inputs, labels, train, test, dev=None):
    """SentEval's loops with scikit-learn: the predictions for `test`, and the development accuracy."""

    def fit(c, rows):
        return linear_model.LogisticRegression(C=c, solver="newton-cholesky", tol=1e-10).fit(inputs[rows], labels[rows])

    kfold = model_selection.StratifiedKFold(n_splits=10, shuffle=True, random_state=1111)
    inner = [(train, dev)] if dev is not None else [(train[a], train[b]) for a, b in kfold.split(train, labels[train])]
    scores = []
    for c in (2.0**power for power in range(-2, 4)):
        scores.append(round(100 * np.mean([fit(c, a).score(inputs[b], labels[b]) for a, b in inner]), 2))
    return fit(2.0 ** (int(np.argmax(scores)) - 2), train).predict(inputs[test]), max(scores)


def prepared(found, folds=10):
    """The inputs of a task, the rows of its outer folds, and those of its development set."""
    rows = {split: np.arange(len(found.labels))[part] for split, part in found.splits.items()}
    side = [np.concatenate([encode([s]) for s in sentences]) for sentences in (found.first, found.second) if sentences]
    inputs = side[0] if len(side) == 1 else np.c_[np.abs(side[0] - side[1]), side[0] * side[1]]
    kfold = model_selection.StratifiedKFold(n_splits=folds, shuffle=True, random_state=1111)
    splits = [(rows["train"], rows["test"])] if "test" in rows else kfold.split(inputs, found.labels)
    return inputs, list(splits), rows.get("dev")


def theirs(found, task: str, protocol: str) -> dict[str, np.ndarray]:
    """Of each fold: accuracy, development accuracy, the penalty (0: not known) and F1."""
    fast = protocol == "pytorch_fast"
    inputs, splits, dev = prepared(found, folds=5 if fast else 10)
    rows = []
    for train, test in splits:
        if protocol == "sklearn":
            predicted, score, penalty = *expected(inputs, found.labels, train, test, dev), 0
        else:
            own = (6 if task == "TREC" else 2, train, test, dev, fast)
            predicted, score, penalty = senteval_classifier.protocol(inputs, found.labels, *own)
        f1 = 100 * metrics.f1_score(found.labels[test], predicted) if task == "MRPC" else 0
        rows.append((round(100 * np.mean(predicted == found.labels[test]), 2), score, penalty, f1))
    return {"folds": np.array(rows)}


def compared(folder, task: str, protocol: str):
    """The result of a task, and the peer's folds, once both are found to agree."""
    found = transfer_files.read_task(write_all(folder), task)
    result = transfer.evaluate(encode, {task: found}, protocol=protocol)[task]
    peers = ["scikit-learn", *["torch"] * (protocol != "sklearn")]
    peer = recorded(f"transfer-{task}-{protocol}", lambda: theirs(found, task, protocol), *peers)["folds"]
    assert [fold["accuracy"] for fold in result["folds"]] == pytest.approx(peer[:, 0])
    assert ("f1" in result) == (task == "MRPC") and result.get("f1", 0) == pytest.approx(peer[:, 3].mean(), abs=0.01)
    return result, peer


@pytest.mark.parametrize("task", ["MPQA", "SST2", "TREC", "MRPC"])
def test_each_protocol_is_sent_evals(tmp_path, task):
    result, peer = compared(tmp_path, task, "sklearn")
    assert (result["accuracy"], result["dev_accuracy"]) == pytest.approx(peer[:, :2].mean(axis=0), abs=0.01)
    assert result["examples"] == (55 if task == "MPQA" else 40)
    found = transfer_files.read_task(tmp_path, task)
    _, hits = transfer.hits(encode, {task: found})[task]
    assert len(hits) == result["examples"] and 100 * hits.mean() == pytest.approx(result["accuracy"], abs=1)


SLOW = [("MRPC", "pytorch"), ("MPQA", "pytorch"), ("MPQA", "pytorch_fast")]


@pytest.mark.optimized
@pytest.mark.parametrize(
    ("task", "protocol"),
    [("SST2", "pytorch"), ("TREC", "pytorch_fast"), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)],
)
def test_the_papers_protocol_is_that_of_sent_evals_pytorch_classifier(tmp_path, task, protocol):
    result, peer = compared(tmp_path, task, protocol)
    assert [fold["dev_accuracy"] for fold in result["folds"]] == pytest.approx(peer[:, 1])
    assert [fold["regularization"] for fold in result["folds"]] == pytest.approx(peer[:, 2])


def test_tasks_too_small_for_a_protocol_are_refused_and_missing_ones_leave_no_average(tmp_path, monkeypatch):
    for label, file in (("pos", "good"), ("neg", "bad")):
        write(tmp_path / "CR" / f"custrev.{label}", [file] * 11)
    tasks, _ = transfer_files.read(str(tmp_path), ["CR"])
    raises("19 sentences to train a classifier on", transfer.evaluate, encode, tasks, protocol="pytorch")
    write_all(tmp_path)
    (tmp_path / "TREC").rename(tmp_path / "elsewhere")
    present, missing = transfer_files.read(str(tmp_path), ["TREC", "MRPC", "SST2"])
    assert (list(present), missing) == (["MRPC", "SST2"], ["TREC"])
    results = {"SST2": {"accuracy": 80.0}, "MRPC": {"accuracy": 70.0, "f1": 75.5}}
    monkeypatch.setattr(transfer, "evaluate", lambda *_, **__: results)
    scored = transfer.Transfer(present, missing)(encode)
    assert scored == {"transfer": results, "transfer_protocol": "sklearn"}
    assert transfer.Transfer(present)(encode) == scored | {"transfer_average": 75.0}
    head, _, figures = transfer.Transfer(present, missing).table(scored).splitlines()
    assert [cell.strip() for cell in head.split("|")] == ["SST", "TREC", "MRPC acc/F1", "Avg."]
    assert [cell.strip() for cell in figures.split("|")] == ["80.00", "-", "70.00/75.50", "-"]
