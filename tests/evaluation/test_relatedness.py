import jax
import numpy as np
import pytest
import scipy.stats
from support.data import raises

from simcse_jax.evaluation import relatedness, sts
from simcse_jax.evaluation.evaluator import pair_features


@pytest.mark.slow
def test_scores_are_shared_between_bins_and_it_learns_more_than_cosines_show():
    np.testing.assert_allclose(
        relatedness.targets(np.array([1.0, 3.25, 5.0, 4.6, 0.4, 0.0])),
        [
            [1, 0, 0, 0, 0],
            [0, 0, 0.75, 0.25, 0],
            [0, 0, 0, 0, 1],
            [0, 0, 0, 0.4, 0.6],
            [0.4, 0, 0, 0, 0],  # SentEval has no bin 0
            [0, 0, 0, 0, 0],
        ],
        atol=1e-6,
    )
    parts = {"train": made(300, 0), "dev": made(100, 1), "test": made(200, 2)}
    inputs = {split: pair_features(first, second) for split, (first, second, _) in parts.items()}
    np.testing.assert_array_equal(pair_features(np.array([[1.0, -2]]), np.array([[3.0, 4]])), [[2, 6, 3, -8]])
    predicted, best, epochs = relatedness.fit(inputs, {split: part[2] for split, part in parts.items()})
    first, second, gold = parts["test"]
    assert sts.pearson(predicted, gold) > 85 > 60 > sts.pearson(sts.cosine(first, second), gold)
    assert best > 85 and epochs % relatedness.EPOCHS == 0 and 1 <= predicted.min() <= predicted.max() <= 5
    inputs, wanted = np.eye(65, dtype=np.float32), relatedness.targets(np.full(65, 5.0))
    params = {"kernel": np.zeros((65, 5), np.float32), "bias": np.zeros(5, np.float32)}
    trained, _ = relatedness._train(params, relatedness._optimizer.init(params), jax.random.key(0), inputs, wanted)
    assert np.all(np.asarray(trained["kernel"])[:, 4] > 0)  # each row has a weight of its own, and it was updated


def made(count: int, seed: int):
    """Embeddings of pairs whose score is hidden from the cosine, but lies in one of their features."""
    first, second = np.random.default_rng(seed).normal(size=(2, count, 6)).astype(np.float32)
    return first, second, np.clip(3 + first[:, 0] * second[:, 0], 1, 5)


def test_the_best_parameters_of_the_development_set_are_kept_and_the_fourth_failure_ends_it(monkeypatch):
    scores = iter([10.0, 30.0, 20.0, 40.0, 5.0, 6.0, 39.0, 99.0])
    looks, trained = [], []

    def train(params, state, *_):
        trained.append(len(trained))
        return {"kernel": params["kernel"] * 0 + len(trained), "bias": params["bias"]}, state

    monkeypatch.setattr(relatedness, "_train", train)
    predict = lambda params, _: looks.append(float(params["kernel"][0, 0])) or np.zeros(4)  # noqa: E731
    monkeypatch.setattr(relatedness, "_predict", predict)
    monkeypatch.setattr(sts, "pearson", lambda *_: next(scores))
    inputs = {split: np.zeros((4, 2)) for split in ("train", "dev", "test")}
    _, best, epochs = relatedness.fit(inputs, {split: np.ones(4) for split in inputs})
    assert (best, epochs) == (40.0, 7 * relatedness.EPOCHS)  # 20, 5, 6 and 39 were not better
    assert looks[-1] == 4  # the test pairs are predicted with what 40 was measured on


def write_sick(folder, scores: str):
    folder.mkdir(exist_ok=True)
    for name in ("train", "trial", "test_annotated"):
        rows = [f"{n}\tthe cat {n}\ta dog {n}\t{score}\tNEUTRAL\n" for n, score in enumerate(scores.split())]
        (folder / f"SICK_{name}.txt").write_text("head\n" + "".join(rows))


def test_a_task_is_trained_and_scored_from_its_files_which_must_be_there(tmp_path):
    write_sick(tmp_path / "SICK", "1 2.5 5 4 3")
    tasks = relatedness.read(str(tmp_path), ["STS12", "SICKRelatedness"])
    sizes = {split: len(pairs.gold) for split, pairs in tasks["SICKRelatedness"].items()}
    assert sizes == {"train": 5, "dev": 5, "test": 5}
    vectors = np.random.default_rng(0).normal(size=(10, 12)).astype(np.float32)
    result = relatedness.evaluate(lambda sentences: vectors[: len(sentences)], tasks)["SICKRelatedness"]
    assert result["pearson"] > 90 and result["mse"] < 0.5 and result["dev_pearson"] == result["pearson"]
    assert result["spearman"] == pytest.approx(100 * scipy.stats.spearmanr(range(5), range(5)).statistic, abs=30)
    assert relatedness.read(str(tmp_path), ["STS12"]) == {}  # years have no training set
    (tmp_path / "SICK" / "SICK_train.txt").unlink()
    raises("SICK_train.txt", relatedness.read, str(tmp_path), ["SICKRelatedness"])
