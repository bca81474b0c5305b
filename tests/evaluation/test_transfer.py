import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from simcse_jax.errors import UserError
from simcse_jax.evaluation import logistic, transfer

WORDS = ["good", "bad", "fine", "dull", "film", "plot", "the", "a"]
VECTORS = dict(zip(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 6)), strict=True))


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Sentences of a random label lie near the boundary: no fit may stop short of the minimum."""
    monkeypatch.setattr(logistic, "TOLERANCE", 1e-10)


def encode(sentences):
    """Adds up random vectors of words, weighted by their places, and is asked for no sentence twice."""
    assert len(set(sentences)) == len(sentences)
    return np.array([sum((VECTORS[w] / n for n, w in enumerate(s.split(), 1)), np.zeros(6)) for s in sentences])


def made(count: int, seed: int, length: int = 6) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(1, length))) for _ in range(count)]


def write(path, lines, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))


def write_all(folder):
    for number, files in enumerate(transfer.CLASS_FILES.values()):
        for label, file in enumerate(files):
            write(folder / file, made(24 + 7 * label, seed=2 * number + label))
    for number, (split, count) in enumerate((("train", 60), ("dev", 30), ("test", 40))):
        rows = made(count, seed=20 + number)
        write(folder / transfer.SPLIT_FILES["SST2"][split], [f"{row} \t{len(row) % 2}" for row in rows])
        if split == "dev":
            continue
        write(
            folder / transfer.SPLIT_FILES["TREC"][split],
            [f"{transfer.QUESTIONS[n % 3]}:x {r} ?" for n, r in enumerate(made(count, 30 + number))],
        )
        pairs = zip(made(count, 40 + number), made(count, 50 + number), strict=True)
        lines = [f"{n % 3 // 2}\t{n}\t{n}\t{a}\t{b}" for n, (a, b) in enumerate(pairs)]
        write(folder / transfer.SPLIT_FILES["MRPC"][split], ["Quality\t#1 ID\t#2 ID\t#1\t#2", *lines], "utf-8-sig")
    return folder


VECTORS["?"] = np.zeros(6)


@pytest.mark.parametrize("labels", ["0110" * 13, "2100" * 17, "ba" * 10 + "aaac" * 12])
def test_folds_are_those_of_scikit_learn(labels):
    labels = np.random.default_rng(1).permutation(list(labels))
    folds = transfer.stratified_folds(labels)
    peer = StratifiedKFold(n_splits=10, shuffle=True, random_state=1111).split(labels, labels)
    for number, (_, test) in enumerate(peer):
        np.testing.assert_array_equal(np.flatnonzero(folds == number), test)


def expected(inputs, labels, train, test, dev=None):
    """SentEval's loops with scikit-learn: the predictions for `test`, and the development accuracy."""

    def fit(c, rows):
        return LogisticRegression(C=c, solver="newton-cholesky", tol=1e-10).fit(inputs[rows], labels[rows])

    kfold = StratifiedKFold(n_splits=10, shuffle=True, random_state=1111)
    inner = [(train, dev)] if dev is not None else [(train[a], train[b]) for a, b in kfold.split(train, labels[train])]
    scores = []
    for c in (2.0**power for power in range(-2, 4)):
        found = [fit(c, a).score(inputs[b], labels[b]) for a, b in inner]
        scores.append(round(100 * np.mean(found), 2))
    return fit(2.0 ** (int(np.argmax(scores)) - 2), train).predict(inputs[test]), max(scores)


@pytest.mark.parametrize("task", ["MPQA", "SST2", "TREC", "MRPC"])
def test_each_protocol_is_sent_evals(tmp_path, task):
    found = transfer.read_task(write_all(tmp_path), task)
    result = transfer.evaluate(encode, {task: found})[task]
    rows = {split: np.arange(len(found.labels))[part] for split, part in found.splits.items()}
    side = [np.concatenate([encode([s]) for s in sentences]) for sentences in (found.first, found.second) if sentences]
    inputs = side[0] if len(side) == 1 else np.c_[np.abs(side[0] - side[1]), side[0] * side[1]]
    if "test" in rows:
        splits = [(rows["train"], rows["test"])]
    else:
        splits = StratifiedKFold(n_splits=10, shuffle=True, random_state=1111).split(inputs, found.labels)
    accuracies, development = [], []
    for train, test in splits:
        predicted, score = expected(inputs, found.labels, train, test, rows.get("dev"))
        accuracies.append(round(100 * np.mean(predicted == found.labels[test]), 2))
        development.append(score)
        if task == "MRPC":
            assert result["f1"] == pytest.approx(100 * f1_score(found.labels[test], predicted), abs=0.01)
    assert [fold["accuracy"] for fold in result["folds"]] == pytest.approx(accuracies)
    assert result["accuracy"] == pytest.approx(np.mean(accuracies), abs=0.01)
    assert result["dev_accuracy"] == pytest.approx(np.mean(development), abs=0.01)
    assert result["examples"] == (40 if "test" in rows else 55)
    assert ("f1" in result) == (task == "MRPC")


def test_the_other_grid_is_a_penalty_beside_the_mean_loss(tmp_path):
    task = transfer.read_task(write_all(tmp_path), "SST2")
    result = transfer.evaluate(encode, {"SST2": task}, grid="pytorch")["SST2"]
    inputs, chosen = np.concatenate([encode([s]) for s in task.first]), result["folds"][0]["regularization"]
    assert chosen in (1e-5, 1e-4, 1e-3, 1e-2)
    model = LogisticRegression(C=2 / (60 * chosen), solver="newton-cholesky", tol=1e-10).fit(
        inputs[:60], task.labels[:60]
    )
    assert result["accuracy"] == pytest.approx(100 * model.score(inputs[90:], task.labels[90:]), abs=0.01)


def test_sentences_are_read_and_sorted_as_sent_eval_does(tmp_path):
    write_all(tmp_path)
    lines = ["the  caf\xe9 plot", "a", "the a"] + ["good film"] * 10
    write(tmp_path / "MPQA/mpqa.pos", lines, "latin-1")
    write(tmp_path / "MPQA/mpqa.neg", ["bad", ""] + ["dull plot"] * 10, "latin-1")
    task = transfer.read_task(tmp_path, "MPQA")
    assert task.first[:4] == ["", "bad", "a", "dull plot"]
    assert (task.first[-1], task.first[-12:-10]) == ("the caf\xe9 plot", ["the a", "good film"])
    assert task.labels.tolist() == [0, 0, 1, *[0] * 10, *[1] * 12]


def test_missing_tasks_are_named_and_leave_no_average(tmp_path):
    write_all(tmp_path)
    (tmp_path / "TREC").rename(tmp_path / "elsewhere")
    present, missing = transfer.read(str(tmp_path), ["TREC", "MRPC", "SST2"])
    assert (list(present), missing) == (["MRPC", "SST2"], ["TREC"])
    results = {"SST2": {"accuracy": 80.0}, "MRPC": {"accuracy": 70.0, "f1": 75.5}}
    assert transfer.average(results, missing) == {}
    assert transfer.average(results, []) == {"transfer_average": 75.0}
    head, _, figures = transfer.table(results, missing).splitlines()
    assert [cell.strip() for cell in head.split("|")] == ["SST", "TREC", "MRPC acc/F1", "Avg."]
    assert [cell.strip() for cell in figures.split("|")] == ["80.00", "-", "70.00/75.50", "-"]


@pytest.mark.parametrize(
    ("task", "file", "lines", "parts"),
    [
        ("SST2", "SST/binary/sentiment-dev", ["good\t1", "bad"], ["line 2", "1 tab-separated", "label"]),
        ("SST2", "SST/binary/sentiment-test", ["good\t1", "bad\t2"], ["line 2", "'2'", "neither 0 nor 1"]),
        ("SST2", "SST/binary/sentiment-train", ["good\t1", "fine\t1"], ["SST/binary", "one class"]),
        ("SST2", "SST/binary/sentiment-test", [], ["SST/binary", "no test sentences"]),
        ("TREC", "TREC/TREC_10.label", ["NUM:dist How far ?", "WHY:x How ?"], ["line 2", "'WHY'", "ABBR"]),
        ("TREC", "TREC/TREC_10.label", ["NUM"], ["line 1", "LABEL:fine question"]),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", ["head", "1\t2\t3\tone"], ["line 2", "4 tab-separated"]),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", ["head", "x\t2\t3\ta\tb"], ["line 2", "'x'", "neither"]),
        ("MR", "MR/rt-polarity.neg", ["bad"] * 9, ["MR has 9", "needs 10"]),
        ("MR", "MR/rt-polarity.neg", None, ["rt-polarity.neg", "cannot be read"]),
    ],
)
def test_damaged_data_is_refused_by_file_and_line(tmp_path, task, file, lines, parts):
    write_all(tmp_path)
    if lines is None:
        (tmp_path / file).unlink()
    else:
        write(tmp_path / file, lines)
    with pytest.raises(UserError) as error:
        transfer.read(str(tmp_path), [task])
    assert [part for part in parts if part not in str(error.value)] == [], str(error.value)


@pytest.mark.parametrize("data", ["", "nowhere"])
def test_a_folder_without_any_task_is_refused(tmp_path, data):
    with pytest.raises(UserError, match="data/downstream"):
        transfer.read(str(tmp_path / data), ["MR", "TREC"])


def test_embeddings_that_are_not_finite_are_refused(tmp_path):
    task = transfer.read_task(write_all(tmp_path), "MR")
    with pytest.raises(UserError, match="not finite"):
        transfer.evaluate(lambda sentences: np.full((len(sentences), 2), np.nan), {"MR": task})


@pytest.mark.parametrize(
    ("task", "counts"),
    [
        ("MR", {"train": 10662}),
        ("CR", {"train": 3775}),
        ("SUBJ", {"train": 10000}),
        ("SST2", {"train": 67349, "dev": 872, "test": 1821}),
        ("TREC", {"train": 5452, "test": 500}),
        ("MRPC", {"train": 4076, "test": 1725}),
    ],
)
def test_the_real_data_sets_have_their_numbers_of_sentences(senteval, task, counts):
    found = transfer.read_task(senteval, task)
    assert {split: part.stop - part.start for split, part in found.splits.items()} == counts
    assert len(np.unique(found.labels)) == (6 if task == "TREC" else 2)
