import numpy as np
import pytest
import scipy.stats
from support.data import raises
from support.recorded import recorded, twice

from simcse_jax.choices import TASKS
from simcse_jax.evaluation import sts
from simcse_jax.huggingface.load import load
from simcse_jax.simcse import SimCSE

WORDS = ["the", "a", "cat", "dog", "bird", "sat", "ran", "sings", "on", "in", "mat", "park"]
VECTORS = dict(zip(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 8)), strict=True))


def word_vectors(sentences):
    """Adds up random vectors of words: no two cosines tie."""
    bags = [[place * VECTORS[w] for place, w in enumerate(s.split(), 2)] for s in sentences]
    return np.array([np.sum(bag, 0) for bag in bags], np.float32)


def expected(pairs, peer=scipy.stats.spearmanr) -> float:
    """A correlation × 100 of (first, second, score) triples, worked out pair by pair."""
    both = [word_vectors([first, second]).astype(float) for first, second, _ in pairs]
    cosines = [float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in both]
    return 100 * peer(cosines, [score for *_, score in pairs]).statistic


def made_pairs(count: int, seed: int) -> list[tuple[str, str, float]]:
    """Pairs (first, second, score) of random sentences."""
    generator = np.random.default_rng(seed)
    pick = lambda: " ".join(generator.choice(WORDS, generator.integers(2, 7)))  # noqa: E731
    return [(pick(), pick(), round(float(generator.uniform(0, 5)), 2)) for _ in range(count)]


def write(path, text: str):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_year(folder, task: str, **changed: list) -> dict[str, list]:
    """A year's data set, whose subsets differ in level and size; returns its pairs by subset."""
    subsets = {}
    for number, subset in enumerate(sts.SUBSETS[task]):
        made = [(a, b, score + 10 * number) for a, b, score in made_pairs(6 + number, seed=number)]
        pairs = changed.get(subset, made)
        year = folder / "STS" / f"{task}-en-test"
        write(year / f"STS.input.{subset}.txt", "".join(f"{a}\t{b}\tsource\n" for a, b, _ in pairs))
        write(year / f"STS.gs.{subset}.txt", "".join(f"{'' if s is None else s}\n" for *_, s in pairs))
        subsets[subset] = pairs
    return subsets


def sts_b(pairs) -> str:
    return "".join(f"genre\tfile\tyear\t{n}\t{score}\t{a}\t{b}\tlicence\n" for n, (a, b, score) in enumerate(pairs))


def sick(pairs) -> str:
    rows = "".join(f"{n}\t{a}\t{b}\t{score}\tNEUTRAL\n" for n, (a, b, score) in enumerate(pairs))
    return "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n" + rows


def score(data, *tasks: str, split: str = "test"):
    pairs, missing = sts.read(str(data), tasks, split)
    return sts.evaluate(word_vectors, pairs), missing


@pytest.mark.parametrize("task", sts.SUBSETS)
def test_every_metric_and_aggregation_is_worked_out_from_the_subsets(tmp_path, task):
    subsets = write_year(tmp_path, task)
    results, missing = score(tmp_path, task)
    result, sizes = results[task], [len(pairs) for pairs in subsets.values()]
    everything = [pair for pairs in subsets.values() for pair in pairs]
    assert missing == [] and len(set(sizes)) == len(sizes)  # otherwise mean and wmean could not be distinguished
    assert result["pairs"] == sum(sizes) and list(result["subsets"]) == list(subsets)
    assert [part["pairs"] for part in result["subsets"].values()] == sizes
    for metric, peer in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        parts = [expected(pairs, peer) for pairs in subsets.values()]
        assert abs(expected(everything, peer) - np.mean(parts)) > 0.1
        assert result[metric] == pytest.approx(expected(everything, peer), abs=1e-4)
        assert result["mean"][metric] == pytest.approx(np.mean(parts), abs=1e-4)
        assert result["wmean"][metric] == pytest.approx(np.average(parts, weights=sizes), abs=1e-4)
        assert [part[metric] for part in result["subsets"].values()] == pytest.approx(parts, abs=1e-4)


def test_averages_are_over_the_tasks_in_each_protocol_and_tables_have_a_row_for_each(tmp_path):
    for task in ("STS12", "STS13"):
        write_year(tmp_path, task)
    write(tmp_path / "STS/STSBenchmark/sts-test.csv", sts_b(made_pairs(9, seed=8)))
    results, missing = score(tmp_path, "STS12", "STS13", "STSBenchmark")
    found = sts.averages(results)
    mean = sum(result["spearman"] for result in results.values()) / 3
    assert found["spearman"]["all"] == pytest.approx(mean, abs=1e-4)
    pairs, _ = sts.read(str(tmp_path), list(results))
    assert sts.Similarity(pairs)(word_vectors) == results | {"average": found["spearman"]["all"]}
    assert sts.Similarity(pairs, every_average=True)(word_vectors)["averages"] == found
    assert sts.Similarity(pairs, ["SICKRelatedness"], every_average=True)(word_vectors) == results
    mean = sum(result["wmean"]["pearson"] for result in results.values()) / 3
    assert found["pearson"]["wmean"] == pytest.approx(mean, abs=1e-4)
    results, missing = score(tmp_path, "STS12", "STS13", "SICKRelatedness")
    assert (list(results), missing) == (["STS12", "STS13"], ["SICKRelatedness"])
    results = scores(**{task: 10.0 * number + 0.126 for number, task in enumerate(reversed(TASKS))})
    head, rule, figures = lines = table(results).splitlines()
    assert cells(head) == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg."]
    assert cells(figures) == ["60.13", "50.13", "40.13", "30.13", "20.13", "10.13", "0.13", "30.13"]
    assert len({len(line) for line in lines}) == 1 and set(rule) == {"-", "+"}
    # A dash for a missing task and for the average; no average of one task.
    head, _, figures = table(scores(SICKRelatedness=50, STS12=70.5), ["STS15"]).splitlines()
    assert cells(head) == ["STS12", "STS15", "SICK-R", "Avg."] and cells(figures) == ["70.50", "-", "50.00", "-"]
    assert table(scores(mine=12.356)).split() == ["mine", "------", "12.36"]
    parts = {"pearson": 1.0, "mean": {"spearman": 2, "pearson": 3}, "wmean": {"spearman": 4, "pearson": 5}}
    results = {task: {"spearman": 60.0, **parts} for task in ("STS12", "STSBenchmark")}
    results["STSBenchmark"]["regressor"] = {"spearman": 77, "pearson": 78}
    head, _, *lines = table(results, [], ["pearson", "spearman"], ["wmean", "all"]).splitlines()
    assert [cells(line) for line in (head, *lines)] == [
        ["", "STS12", "STS-B", "Avg."],
        ["Pearson, wmean", "5.00", "5.00", "5.00"],
        ["Pearson, all", "1.00", "1.00", "1.00"],
        ["Pearson, regressor", "-", "78.00", "-"],
        ["Spearman, wmean", "4.00", "4.00", "4.00"],
        ["Spearman, all", "60.00", "60.00", "60.00"],
        ["Spearman, regressor", "-", "77.00", "-"],
    ]


def test_each_task_and_split_has_its_file_and_columns_and_pairs_without_a_score_are_left_out(tmp_path):
    write_year(tmp_path, "STS12")
    files = {"STSBenchmark": ("STS/STSBenchmark/sts-dev.csv", sts_b), "SICKRelatedness": ("SICK/SICK_trial.txt", sick)}
    for seed, (name, layout) in enumerate(files.values()):
        write(tmp_path / name, layout(made_pairs(5 + seed, seed)))
        write(tmp_path / name.replace("dev", "test").replace("trial", "test_annotated"), layout(made_pairs(9, seed=9)))
    results, missing = score(tmp_path, "STS12", "STSBenchmark", "SICKRelatedness", split="dev")
    assert missing == ["STS12"]
    assert {task: result["pairs"] for task, result in results.items()} == {"STSBenchmark": 5, "SICKRelatedness": 6}
    for seed, result in enumerate(results.values()):
        assert result["spearman"] == pytest.approx(expected(made_pairs(5 + seed, seed)), abs=1e-4)
    pairs = made_pairs(9, seed=5)
    write_year(tmp_path, "STS16", plagiarism=[(a, b, None if n % 3 else s) for n, (a, b, s) in enumerate(pairs)])
    found = sts.read_task(tmp_path, "STS16")
    part = found.subsets["plagiarism"]
    assert list(zip(found.first[part], found.second[part], found.gold[part], strict=True)) == pairs[::3]
    assert part.stop - part.start == 3
    first, second, third = pairs[:3]
    write(tmp_path / "SICK" / "SICK_test_annotated.txt", sick([first, (*second[:2], ""), third]))
    assert len(sts.read_task(tmp_path, "SICKRelatedness").gold) == 2
    write(tmp_path / "SICK/SICK_test_annotated.txt", sick([("one", "two", 3.3), ("three", "four", 1)]))
    write(tmp_path / "STS/STSBenchmark/sts-test.csv", sts_b([('"The cat', 'a "dog"', 2.5), ("sat", '"', 4)]))
    found = sts.read_task(tmp_path, "SICKRelatedness")
    assert found[:2] == (["one", "three"], ["two", "four"]) and found.subsets == {}
    np.testing.assert_array_equal(found.gold, [3.3, 1.0])
    found = sts.read_task(tmp_path, "STSBenchmark")
    assert found[:2] == (['"The cat', "sat"], ['a "dog"', '"']) and found.subsets == {}
    np.testing.assert_array_equal(found.gold, [2.5, 4.0])


@pytest.mark.parametrize("layout", ["header", "other order", "STS-B"])
def test_a_file_of_graded_pairs_is_a_task_named_like_the_file(tmp_path, layout):
    pairs = made_pairs(6, seed=4)
    text = {
        "header": "sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{s}\n" for a, b, s in pairs),
        "other order": "id\tscore\tsentence2\tsentence1\n" + "".join(f"7\t{s}\t{b}\t{a}\n" for a, b, s in pairs) + "\n",
        "STS-B": sts_b(pairs),
    }[layout]
    path = write(tmp_path / "mine.tsv", text)
    results, missing = score(path, *TASKS)
    assert (list(results), missing) == (["mine"], [])
    for name in ("average", "averages", "stsb_dev", "alignment", "development"):  # which mean something else
        assert list(sts.read(str(write(tmp_path / f"{name}.tsv", text)), [])[0]) == [f"{name}.tsv"]
    result = results["mine"]
    assert (result["spearman"], result["pairs"]) == (pytest.approx(expected(pairs), abs=1e-4), 6)
    both = {metric: result[metric] for metric in ("spearman", "pearson")}
    assert result["mean"] == result["wmean"] == both and result["subsets"] == {}
    found = sts.read_graded_pairs(path)
    assert list(zip(found.first, found.second, found.gold, strict=True)) == pairs
    assert sts.is_graded(path) == (layout != "STS-B") and sts.is_graded(tmp_path)


def scores(**tasks: float):
    return {task: {"spearman": value, "pairs": 2, "subsets": {}} for task, value in tasks.items()}


def table(results, *options) -> str:
    return sts.Similarity(dict.fromkeys(results), *options).table(results)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def test_correlations_are_scipy_s_of_cosines_and_0_for_a_constant_side_or_a_zero_vector():
    for count in (2, 3, 30, 1379):
        generator = np.random.default_rng(count)
        similarity = generator.normal(size=count)
        gold = np.round(generator.normal(size=count) + np.arange(count) % 2, 1)
        for some in (similarity, np.round(similarity, 1), gold):  # without ties and with some
            assert sts.spearman(some, gold) == 100 * scipy.stats.spearmanr(some, gold).statistic  # to the last bit
            assert sts.pearson(some, gold) == pytest.approx(100 * scipy.stats.pearsonr(some, gold).statistic)
        assert np.isnan(sts.spearman(np.append(similarity, np.nan), np.append(gold, 0.0)))
        constant = np.full(count, 0.5)
        for pair in ((constant, gold), (gold, constant), (gold[:1], gold[:1])):
            assert sts.spearman(*pair) == sts.pearson(*pair) == 0.0
    first, second = [[3.0, 4.0], [0, 0], [1, 0]], [[30.0, 40.0], [1, 1], [0, 2]]
    found = sts.cosine(np.array(first, np.float32), np.array(second, np.float32))
    np.testing.assert_allclose(found, [1, 0, 0], atol=1e-12)


HEAD = "sentence1\tsentence2\tscore\n"


def test_what_cannot_be_scored_is_refused_by_file_and_line(tmp_path):
    write_year(tmp_path, "STS12")
    for file, task, text, parts in (
        ("", "SICKRelatedness", "", ["no SICKRelatedness there", "data/downstream"]),
        ("STS/STS12-en-test/STS.gs.MSRvid.txt", "STS12", "1\nnan\n" + "2\n" * 5, ["line 2", "'nan'"]),
        ("SICK/SICK_test_annotated.txt", "SICKRelatedness", sick([("a", "b", "3;5")]), ["line 2", "'3;5'"]),
        ("STS/STSBenchmark/sts-test.csv", "STSBenchmark", sts_b(made_pairs(1, 0)), ["1 graded pairs"]),
        ("SICK/SICK_test_annotated.txt", "SICKRelatedness", sick([]), ["0 graded pairs"]),
    ):
        path = write(tmp_path / file, text) if file else tmp_path
        for part in (str(path), *parts):
            raises(part, sts.read, str(tmp_path), [task])
    raises("nowhere: no STS12 there", sts.read, str(tmp_path / "nowhere"), ["STS12"])
    for text, part in (
        ("", "must name the columns"),
        ("The cat sat.\nThe dog ran.\n", "sentence1, sentence2 and score"),
        ("sentence1,sentence2,score\na,b,1\n", "1 graded pairs"),
        (f"{HEAD}a\tb\t1\nc\td\t1.0\n", "all 2 scores are 1: no correlation"),
        *((f"{HEAD}a\tb\t1\nc\td\t{bad}\n", f"line 3: the score holds '{bad}'") for bad in ("nan", "-1e100", "x")),
    ):
        path = write(tmp_path / "notes.txt", text)
        for each in ("notes.txt", part):
            raises(each, sts.read, str(path), ["STS12"])


def test_the_real_data_sets_have_their_numbers_of_pairs(senteval):
    test = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS16": 1186, "STSBenchmark": 1379, "SICKRelatedness": 4927}
    for split, counts in (("test", test), ("dev", {"STSBenchmark": 1500, "SICKRelatedness": 500})):
        for task, count in counts.items():
            found = sts.read_task(senteval, task, split)
            assert len(found.first) == len(found.second) == len(found.gold) == count
            assert all(sentence.strip() for sentence in found.first + found.second)
            assert 0 <= found.gold.min() <= 1 and 4.5 <= found.gold.max() <= 5
            assert sum(part.stop - part.start for part in found.subsets.values()) in (0, count)


def test_white_space_in_a_sentence_is_one_space_as_in_sent_eval(tmp_path):
    """Byte-level tokenizers have tokens of further spaces. The fingerprint is that of the file, as before."""
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tscore\na  cat \ta\u00a0dog\t1\n b\tc\t2\n")
    pairs = sts.read_graded_pairs(tmp_path / "dev.tsv")
    assert (pairs.first, pairs.second) == (["a cat", "b"], ["a dog", "c"])
    assert pairs.first_as_read == ["a  cat ", " b"]
    raw = sts.Pairs(["a  cat ", " b"], ["a\u00a0dog", "c"], pairs.gold, {})
    assert raw.first_as_read == raw.first
    found = [sts.Correlation("dev", {"dev": each}).fingerprint for each in (pairs, raw)]
    assert found[0] == found[1]


@twice(pytest.mark.optimized)
def test_scores_of_a_real_model_are_those_of_sentence_transformers(minilm, senteval, live):
    tasks, _ = sts.read(str(senteval), ["STS13", "STSBenchmark"] if live else ["STSBenchmark"])
    if not live:  # the first pairs
        (pairs,) = tasks.values()
        tasks = {"STSBenchmark": sts.Pairs(pairs.first[:60], pairs.second[:60], pairs.gold[:60], {})}

    def theirs() -> dict[str, np.ndarray]:
        from sentence_transformers import SentenceTransformer, models

        transformer = models.Transformer(load(minilm).folder)
        pooling = models.Pooling(transformer.get_word_embedding_dimension(), "mean")
        model, found = SentenceTransformer(modules=[transformer, pooling], device="cpu"), {}
        for task, pairs in tasks.items():
            found[task] = [model.encode(side, show_progress_bar=False) for side in (pairs.first, pairs.second)]
        return {task: sts.cosine(*both) for task, both in found.items()}

    peer = recorded("sts_of_minilm", theirs, "sentence-transformers", live=live)
    for task, result in sts.evaluate(SimCSE(minilm, pooler="avg").encode, tasks).items():
        expected = 100 * scipy.stats.spearmanr(peer[task], tasks[task].gold).statistic
        assert result["spearman"] == pytest.approx(expected, abs=0.01), task
