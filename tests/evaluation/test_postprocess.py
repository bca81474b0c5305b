import functools
import json

import numpy as np
import pytest
from support import call, refused
from support.data import raises

from simcse_jax.evaluation import flow, postprocess, sts
from simcse_jax.evaluation.evaluator import by_task
from simcse_jax.evaluation.postprocess import read_all_splits
from simcse_jax.evaluation.sts import Pairs
from simcse_jax.simcse import SimCSE


def correlated(rows: int, size: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    mixing = generator.normal(0, 1, (size, size)) * np.geomspace(0.05, 3, size)
    return (5 + generator.normal(0, 1, (rows, size)) @ mixing).astype(np.float32)


def test_whitened_embeddings_have_the_identity_for_covariance_without_what_is_rounding_alone(monkeypatch):
    x = correlated(500, 16)
    mean, kernel = postprocess.whitening(x)
    white = (x - mean) @ kernel
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(white.T, ddof=0), np.eye(16), atol=1e-9)
    inverse = np.linalg.inv(np.cov(x.T, ddof=0))  # cosines are those of the Mahalanobis product, for any rotation
    np.testing.assert_allclose(white[:5] @ white[:5].T, (x[:5] - mean) @ inverse @ (x[:5] - mean).T, rtol=1e-6)
    _, kernel = postprocess.whitening(x, 3)
    assert kernel.shape == (16, 3)
    np.testing.assert_allclose(kernel, postprocess.whitening(x)[1][:, :3])
    values, vectors = np.linalg.eigh(np.cov(x.T, ddof=0))
    overlap = np.abs(vectors[:, -3:][:, ::-1].T @ kernel)
    np.testing.assert_allclose(overlap, np.diag(values[-3:][::-1] ** -0.5), atol=1e-6)
    whole = postprocess.whitening(x)
    monkeypatch.setattr(postprocess, "ROWS", 64)
    for one, other in zip(whole, postprocess.whitening(x), strict=True):
        np.testing.assert_allclose(np.abs(one), np.abs(other), rtol=1e-9)
    x = correlated(500, 8)
    x -= x.mean(axis=1, keepdims=True)  # what LayerNorm does
    transform = postprocess.fit("whitening", x)
    assert transform(x).shape == (500, 7) and transform(x).dtype == np.float32
    raises("vary in 7 directions only", postprocess.fit, "whitening", x, dimensions=8)
    raises("vary in 0 directions only", postprocess.fit, "whitening", np.ones((9, 4), np.float32))
    x = correlated(512, 13)
    transform = postprocess.fit("flow", x, seed=1)
    np.testing.assert_array_equal(transform(x[:7]), flow.transform(flow.fit(x, 1), x[:7]))
    raises("not finite", postprocess.fit, "whitening", np.array([[1.0, np.nan], [0.0, 1.0]]))


def encoder(size: int = 4):
    """An encoder with a strong common direction, and the list of what it was asked for."""
    asked = []

    def encode(sentences):
        asked.append(list(sentences))
        rows = [np.random.default_rng(sum(map(ord, s)) * 31 + len(s)).normal(0, 1, size) for s in sentences]
        return (np.array(rows) * np.linspace(0.1, 2, size) + 10).astype(np.float32)

    return encode, asked


def pairs(names) -> Pairs:
    return Pairs([f"{name} a" for name in names], [f"{name} b" for name in names], np.arange(len(names)) / 1.0, {})


TASKS = {"one": pairs("abcdefgh"), "two": pairs("qrstuvwxyz")}


def whitened(encode, sentences, name: str) -> dict:
    """The scores of one task with a whitening of three dimensions that is fit on these sentences."""
    mean, kernel = postprocess.whitening(encode(sentences), 3)
    result = sts.evaluate(lambda s: (encode(s) - mean) @ kernel, {name: TASKS[name]})[name]
    return {name: pytest.approx(result["spearman"])}


def test_a_source_is_fit_once_and_the_target_is_each_task_s_own_sentences_or_all_of_its_splits():
    encode, asked = encoder()
    sentences = [f"sentence {number}" for number in range(30)]
    embed = postprocess.transformed(encode, postprocess.Postprocess("whitening", sentences, 3))
    wanted = {name: score for task in TASKS for name, score in whitened(encode, sentences, task).items()}
    asked.clear()
    for _ in range(2):
        results = by_task(sts.evaluate, embed, TASKS)
        assert {task: result["spearman"] for task, result in results.items()} == wanted
    assert sentences not in asked and len(asked) == 2
    without = by_task(sts.evaluate, postprocess.transformed(encode, None), TASKS)
    assert results != sts.evaluate(encode, TASKS) == without
    more = [f"other {number}" for number in range(9)]
    one, two = map(postprocess.sentences_of, TASKS.values())
    for splits in ({}, {"one": [*more, *more, *one]}):
        asked.clear()
        embed = postprocess.transformed(encode, postprocess.Postprocess("whitening", None, 3, splits))
        results = by_task(sts.evaluate, embed, TASKS)
        fit_on = {"one": one, "two": two} | splits
        assert [sorted(some) for some in asked] == [sorted(set(some)) for some in fit_on.values()]  # encoded once
        assert list(results) == list(TASKS)
        for name, sentences in fit_on.items():
            assert {name: results[name]["spearman"]} == whitened(encode, sentences, name)


def test_any_source_is_read_or_all_splits_of_the_tasks_as_they_are_scored(corpus, tmp_path):
    found = postprocess.read("flow", str(corpus["csv"]))
    assert len(found.sentences) == 3 * 40 and found.method == "flow"
    assert len(postprocess.read("whitening", str(corpus["txt"]), 8).sentences) == 40
    assert postprocess.read("whitening", "target", 8) == postprocess.Postprocess("whitening", None, 8)
    both = postprocess.read("flow", f"{corpus['txt']},{corpus['csv']}").sentences  # of different columns
    assert len(both) == 40 + len(found.sentences) and both[40:] == found.sentences
    raises("target: no such file", postprocess.read, "flow", f"{corpus['txt']},target")
    raises("no/such.txt: no such file, nor is it 'target' or", postprocess.read, "whitening", "no/such.txt")

    def check(dimensions, size, method="whitening", sentences=None):
        postprocess.check(postprocess.Postprocess(method, sentences, dimensions), size, TASKS.items())

    check(0, 15)
    raises("one has 16 different sentences; whitening of 16 dimensions needs 17 or more", check, 0, 16)
    check(3, 16)
    raises("the source has 1 different sentences; flow of 4 dimensions needs 5 or more", check, 0, 4, "flow", ["a"] * 9)
    folder = tmp_path  # of SentEval, with STS-B and one year
    for name in ("train", "dev", "test"):
        path = folder / sts.SINGLE_FILES["STSBenchmark"][name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"g\tf\ty\t0\t{score}\t{name} {score} a\t{name} {score} b\n" for score in (1, 2)))
    year = folder / "STS" / "STS13-en-test"
    year.mkdir(parents=True)
    for subset in sts.SUBSETS["STS13"]:
        (year / f"STS.input.{subset}.txt").write_text("".join(f"{subset} {i} a\t{subset} {i} b\n" for i in range(3)))
        (year / f"STS.gs.{subset}.txt").write_text("1\n\n2\n")  # one pair has no score
    found = read_all_splits(str(folder))
    assert list(found) == ["STS13", "STSBenchmark"]
    of = {name: sts.read_task(folder, "STSBenchmark", name) for name in ("train", "dev", "test")}
    assert found["STSBenchmark"] == [s for pairs in of.values() for s in (*pairs.first, *pairs.second)]
    year = found["STS13"]
    assert len(year) == 3 * 3 * 3 * 2 and year[:18] == year[18:36] == year[36:]
    assert "OnWN 1 a" in year  # the pair without a score
    fit_on = postprocess.read("whitening", "target_all", 0, str(folder))
    assert len(set(fit_on.of_task("STSBenchmark", of["test"]))) == 12
    assert len(set(fit_on.of_task("other", of["test"]))) == 4
    assert postprocess.sentences_of(of) == found["STSBenchmark"]
    subset = sts.SUBSETS["STS13"][0]
    path = folder / "STS" / "STS13-en-test" / f"STS.input.{subset}.txt"
    path.write_text(path.read_text().replace(" 0 ", "  0 ", 1).replace("\t", " \t", 1))
    pairs, _ = sts.read(str(folder), ["STS13"])
    fit_on = postprocess.read("whitening", "target_all", 2, str(folder))
    embed = postprocess.transformed(
        lambda texts: np.random.default_rng(len(texts)).normal(size=(len(texts), 4)), fit_on
    )
    sts.Similarity(pairs)(embed)  # all sentences are there
    (folder / "STS/STSBenchmark/sts-dev.csv").unlink()
    raises("sts-dev.csv is missing; use target", read_all_splits, str(folder))
    for data in (str(corpus["dev"]), ""):
        raises("is not SentEval's folder", postprocess.read, "whitening", "target_all", scored=data)


@pytest.mark.optimized
@pytest.mark.slow
def test_it_helps_an_anisotropic_encoder_and_not_one_that_is_not(minilm, senteval):
    """Three layers of MiniLM, averaged, are anisotropic; first-last average of all six is not."""
    tasks, _ = sts.read(str(senteval), ["STSBenchmark"])
    texts = sorted({*tasks["STSBenchmark"].first, *tasks["STSBenchmark"].second})

    @functools.cache
    def vectors(pooler: str, num_layers: int) -> dict[str, np.ndarray]:
        return dict(zip(texts, SimCSE(minilm, pooler=pooler, num_layers=num_layers).encode(texts), strict=True))

    def spearman(pooler: str, num_layers: int, method: str | None) -> float:
        fit_on = postprocess.Postprocess(method, None) if method else None
        of = vectors(pooler, num_layers)
        embed = postprocess.transformed(lambda sentences: np.stack([of[sentence] for sentence in sentences]), fit_on)
        return by_task(sts.evaluate, embed, tasks)["STSBenchmark"]["spearman"]

    raw = spearman("avg", 3, None)
    assert spearman("avg", 3, "whitening") > raw + 10 and spearman("avg", 3, "flow") > raw + 10
    assert spearman("avg_first_last", 0, "whitening") < spearman("avg_first_last", 0, None) - 2


def test_the_evaluation_command_takes_it(tiny_bert, corpus, tmp_path):
    args = ("--model", tiny_bert, "--data", corpus["dev"], "--output", tmp_path / "scores.json")
    whitening = ("--postprocess", "whitening", "--postprocess-data", corpus["csv"], "--postprocess-dimensions", 6)
    done = call("evaluate", *args, *whitening)
    assert done.returncode == 0, done.stderr
    assert f", after whitening fit on {corpus['csv']}" in done.stdout
    tasks = {"dev": sts.read_graded_pairs(corpus["dev"])}
    embed = postprocess.transformed(SimCSE(str(tiny_bert)).encode, postprocess.read("whitening", str(corpus["csv"]), 6))
    written = json.loads((tmp_path / "scores.json").read_text())["dev"]["spearman"]
    assert written == pytest.approx(by_task(sts.evaluate, embed, tasks)["dev"]["spearman"], abs=0.5)
    for more, message in (
        (("--postprocess", "whiten", "--postprocess-data", "target"), '"whiten" for --postprocess'),
        (("--postprocess", "flow"), "--postprocess-data: must be set for"),
    ):
        refused(call("evaluate", *args, *more), message)
