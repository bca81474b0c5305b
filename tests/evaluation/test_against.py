import numpy as np
import pytest
import scipy.stats

from simcse_jax.evaluation import against, beir, retrieval, sts
from simcse_jax.evaluation.against import Paired, measure
from simcse_jax.evaluation.postprocess import Postprocess, transformed
from simcse_jax.evaluation.transfer import Transfer
from simcse_jax.evaluation.transfer_files import Task

GENERATOR = np.random.default_rng(0)
GOLD = GENERATOR.permutation(200) / 200
FIRST, SECOND = [f"a {n}" for n in range(200)], [f"b {n}" for n in range(200)]
PAIRS = sts.Similarity({"held_out": sts.Pairs(FIRST, SECOND, GOLD, {})})


def model(noise: float, seed: int = 1):
    """Cosines that are the gold scores, with noise."""
    drawn = np.random.default_rng(seed).normal(size=200) * noise

    def embed(sentences):
        kinds, rows = zip(*(sentence.split() for sentence in sentences), strict=True)
        cosines = np.clip((GOLD + drawn)[list(map(int, rows))], -1, 1)
        angles = np.where(np.array(kinds) == "b", np.arccos(cosines), 0)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    return embed


def compare(evaluators, before, after, seed=0):
    return against.compare(*measure(evaluators, before, after), seed)


def test_scores_of_samples_are_those_of_the_rows_repeated():
    gold, before, after = (
        GENERATOR.integers(5, size=50) / 4,
        GENERATOR.normal(size=50).round(1),
        GENERATOR.normal(size=50),
    )
    counts = GENERATOR.multinomial(50, np.full(50, 1 / 50), size=20)
    counts[0] = np.eye(50)[3] * 50  # one row alone has no ranks
    for task in (Paired(np.arange(50), before, after, gold), Paired(np.arange(50), before, after, None)):
        for column, values in enumerate((before, after)):
            found = task.scores(counts)[column]
            for number, times in enumerate(counts):
                rows = np.repeat(np.arange(50), times)
                expected = values[rows].mean() if task.gold is None else sts.spearman(values[rows], gold[rows])
                assert found[number] == pytest.approx(expected, abs=1e-9)


def test_folds_count_alike_and_few_groups_widen_the_interval():
    groups = np.arange(40)
    better = Paired(groups, np.zeros(40), np.ones(40), None)
    found = against.compare([better, better._replace(after=np.full(40, 3.0))], "mean", 0)
    assert found == against.Comparison(0.0, 2.0, 2.0, 2.0, "mean")
    generator = np.random.default_rng(0)
    for rows in (10, 40):
        values = generator.normal(size=rows)
        found = against.compare([Paired(np.arange(rows), np.zeros(rows), values, None)], "mean", 0)
        student = scipy.stats.t.ppf(0.975, rows - 1) * values.std() / rows**0.5
        assert found.high - found.low == pytest.approx(2 * student, rel=0.06)
    repeated = Paired(np.repeat(np.arange(10), 10), np.zeros(100), np.repeat(generator.normal(size=10), 10), None)
    one = Paired(np.arange(10), np.zeros(10), repeated.after[::10], None)
    widths = [(result := against.compare([task], "mean", 0)).high - result.low for task in (repeated, one)]
    assert widths[0] == pytest.approx(widths[1], rel=1e-6)


def test_the_interval_is_that_of_the_paired_differences_and_tells_a_gain_from_chance(monkeypatch):
    before, after = (sts.cosine(*np.split(model(noise)([*FIRST, *SECOND]), 2)) for noise in (0.3, 0.2))

    def difference(first, second, gold):
        return sts.spearman(second, gold) - sts.spearman(first, gold)

    options = {"paired": True, "vectorized": False, "n_resamples": 1000, "method": "percentile", "rng": 5}
    expected = scipy.stats.bootstrap((before, after, GOLD), difference, **options).confidence_interval
    found = compare([PAIRS], model(0.3), model(0.2), seed=0)
    assert found.low == pytest.approx(expected.low, abs=0.4) and found.high == pytest.approx(expected.high, abs=0.4)
    monkeypatch.setattr(against, "RESAMPLES", 200)
    helped = compare([PAIRS], model(0.5), model(0.1), seed=3)
    assert helped.is_better and helped.low > 0 and helped.before < helped.after
    assert helped.low < helped.after - helped.before < helped.high
    assert helped.measure == "Spearman × 100"
    assert helped.after == pytest.approx(PAIRS(model(0.1))["held_out"]["spearman"], abs=1e-3)
    same = compare([PAIRS], model(0.2), model(0.21), seed=3)
    assert not same.is_better and same.low < 0 < same.high + 1
    harmed = compare([PAIRS], model(0.1), model(0.5), seed=3)
    assert not harmed.is_better and harmed.high < 0
    # A post-processing is fit for each model and task, as where the result is scored.
    before, after = (transformed(model(noise), Postprocess("whitening", None, 2)) for noise in (0.5, 0.1))
    found = compare([PAIRS], before, after, seed=3)
    assert found.before == pytest.approx(PAIRS(before)["held_out"]["spearman"], abs=1e-3)
    assert abs(found.before - helped.before) > 1


@pytest.mark.slow
def test_retrieval_is_compared_by_query_and_queries_with_one_answer_are_drawn_together():
    queries, documents = {f"q{n}": f"a {n}" for n in range(40)}, {f"{n:03}": f"b {n}" for n in reversed(range(40))}
    collection = beir.collect(queries, documents, {(f"q{n}", f"{n:03}"): 1 for n in range(40)}, 40)
    task = retrieval.Retrieval({"held_out": collection}, ["ndcg@10"])
    identity = np.eye(40, dtype=np.float32)

    def good(sentences):
        return np.stack([identity[int(sentence.split()[1])] for sentence in sentences])

    def poor(sentences):
        return np.stack([identity[int(s.split()[1]) // (2 if s[0] == "a" else 1)] for s in sentences])

    found = compare([task], poor, good, seed=0)
    assert found.before == pytest.approx(task(poor)["retrieval_average"]["ndcg@10"], abs=1e-3)
    assert found.is_better and found.after == 100 and found.measure == "nDCG@10 × 100"
    task = retrieval.Retrieval({"held_out": collection, "other": collection}, ["mrr@10", "ndcg@10"])
    assert compare([task], poor, good, seed=0).measure == "MRR@10 × 100, mean of 2 tasks"

    def model(good):
        def embed(sentences):
            numbers = [int(s.split()[1]) // (10 if s[0] == "q" else 1) for s in sentences]
            wrong = [s[0] == "q" and number >= good for s, number in zip(sentences, numbers, strict=True)]
            return identity[[(number + 1) % 40 if bad else number for number, bad in zip(numbers, wrong, strict=True)]]

        return embed

    def task(repeated):
        queries = {f"q{n}": f"q {n}" for n in range(0, 100, 1 if repeated else 10)}
        documents = {f"{n:03}": f"d {n}" for n in reversed(range(40))}
        judged = {(name, f"{int(text.split()[1]) // 10:03}"): 1 for name, text in queries.items()}
        return retrieval.Retrieval({"held_out": beir.collect(queries, documents, judged, 40)}, ["ndcg@10"])

    one, ten = (compare([task(repeated)], model(5), model(8), seed=0) for repeated in (False, True))
    assert (ten.low, ten.high) == pytest.approx((one.low, one.high), abs=1e-6)


def test_queries_that_share_a_text_but_for_case_are_one_group():
    queries = {"q0": "A question", "q1": "a  Question", "q2": "another", "q3": "none"}
    documents = {"000": "An answer", "001": "an ANSWER", "002": "one more", "003": "x"}
    judged = {("q0", "000"): 1, ("q1", "002"): 1, ("q2", "001"): 1, ("q3", "003"): 1}
    groups = against._groups(beir.collect(queries, documents, judged, 4))
    assert groups[0] == groups[1] == groups[2] != groups[3]


def test_classifiers_are_compared_by_sentence_and_equal_ones_are_drawn_together():
    texts, labels = [f"{row}" for row in range(60)], np.arange(60) % 2
    texts[59] = texts[57]  # both are judged
    task = Task(texts, [], labels, {"train": slice(0, 40), "test": slice(40, None)}, 2)

    def embed(wrong):
        return lambda sentences: np.float32([[(int(text) % 2) ^ (text in wrong), 1] for text in sentences])

    (paired,), name = measure([Transfer({"held_out": task})], embed({"41", "42", "57"}), embed({"44"}))
    assert name == "Accuracy × 100" and paired.gold is None and len({*paired.groups}) == 19
    assert np.flatnonzero(paired.before == 0).tolist() == [1, 2, 17, 19]
    assert np.flatnonzero(paired.after == 0).tolist() == [4] and paired.all_rows == (80, 95)
