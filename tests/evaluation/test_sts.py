import numpy as np
import pandas
import pytest
import scipy.stats

from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.tasks import TASKS

WORDS = ["the", "a", "cat", "dog", "bird", "sat", "ran", "sings", "on", "in", "mat", "park"]
VECTORS = dict(zip(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 8)), strict=True))


class WordVectors:
    """An encoder that adds up random vectors of words (no two cosines tie), and remembers what it was asked for."""

    def __init__(self):
        self.seen: list[str] = []

    def __call__(self, sentences):
        self.seen += sentences
        bags = [[place * VECTORS[w] for place, w in enumerate(s.split(), 2)] for s in sentences]
        return np.array([np.sum(bag, 0) for bag in bags], np.float32)

    def expected(self, pairs) -> float:
        """Spearman × 100 of (first, second, score) triples, worked out pair by pair."""
        cosines = [
            float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))
            for a, b in (WordVectors()([first, second]).astype(float) for first, second, _ in pairs)
        ]
        return 100 * scipy.stats.spearmanr(cosines, [score for *_, score in pairs]).statistic


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
        pairs = changed.get(
            subset, [(a, b, score + 10 * number) for a, b, score in made_pairs(6 + number, seed=number)]
        )
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
    return sts.evaluate(WordVectors(), pairs), missing


@pytest.mark.parametrize("task", sts.SUBSETS)
def test_a_task_is_scored_over_all_pairs_together_and_by_subset(tmp_path, task):
    subsets = write_year(tmp_path, task)
    results, missing = score(tmp_path, task)
    everything = [pair for pairs in subsets.values() for pair in pairs]
    expected = WordVectors().expected(everything)
    means = np.mean([WordVectors().expected(pairs) for pairs in subsets.values()])
    assert abs(expected - means) > 0.1  # otherwise the aggregations could not be distinguished
    assert missing == []
    assert results[task]["spearman"] == pytest.approx(expected, abs=1e-4)
    assert results[task]["pairs"] == len(everything)
    assert list(results[task]["subsets"]) == list(subsets)
    for name, pairs in subsets.items():
        assert results[task]["subsets"][name]["spearman"] == pytest.approx(WordVectors().expected(pairs), abs=1e-4)
        assert results[task]["subsets"][name]["pairs"] == len(pairs)


def test_every_metric_and_aggregation_is_worked_out_from_the_subsets(tmp_path):
    subsets = write_year(tmp_path, "STS13")
    result = score(tmp_path, "STS13")[0]["STS13"]
    sizes = [len(pairs) for pairs in subsets.values()]
    assert len(set(sizes)) == 3  # otherwise mean and wmean could not be distinguished

    def pearson(pairs):
        first, second = (WordVectors()([pair[side] for pair in pairs]).astype(float) for side in (0, 1))
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        return 100 * scipy.stats.pearsonr((first * second).sum(1) / norms, [pair[2] for pair in pairs]).statistic

    for metric, expected in (("spearman", WordVectors().expected), ("pearson", pearson)):
        parts = [expected(pairs) for pairs in subsets.values()]
        assert result[metric] == pytest.approx(expected([p for pairs in subsets.values() for p in pairs]), abs=1e-4)
        assert result["mean"][metric] == pytest.approx(sum(parts) / 3, abs=1e-4)
        weighted = sum(part * size for part, size in zip(parts, sizes, strict=True)) / sum(sizes)
        assert result["wmean"][metric] == pytest.approx(weighted, abs=1e-4)
        assert [part[metric] for part in result["subsets"].values()] == pytest.approx(parts, abs=1e-4)


def test_the_averages_are_those_of_each_protocol(tmp_path):
    for task in ("STS12", "STS13"):
        write_year(tmp_path, task)
    results, missing = score(tmp_path, "STS12", "STS13")
    found = sts.averages(results, missing)
    assert found["average"] == sts.average(results, missing)["average"] == found["averages"]["spearman"]["all"]
    mean = (results["STS12"]["wmean"]["pearson"] + results["STS13"]["wmean"]["pearson"]) / 2
    assert found["averages"]["pearson"]["wmean"] == pytest.approx(mean, abs=1e-4)
    assert sts.averages(results, ["STS14"]) == {}


@pytest.mark.parametrize("name", ["average", "averages", "stsb_dev", "alignment", "development"])
def test_a_file_cannot_take_the_place_of_the_averages(tmp_path, name):
    assert list(sts.read(str(write(tmp_path / f"{name}.tsv", sts_b(made_pairs(3, 0)))), [])[0]) == [f"{name}.tsv"]


def test_pairs_without_a_score_are_left_out(tmp_path):
    pairs = made_pairs(9, seed=5)
    write_year(tmp_path, "STS16", plagiarism=[(a, b, None if n % 3 else s) for n, (a, b, s) in enumerate(pairs)])
    found = sts.read_task(tmp_path, "STS16")
    part = found.subsets["plagiarism"]
    assert list(zip(found.first[part], found.second[part], found.gold[part], strict=True)) == pairs[::3]
    assert part.stop - part.start == 3


def test_a_single_file_task_skips_pairs_without_a_score(tmp_path):
    first, second, third = made_pairs(3, seed=5)
    write(tmp_path / "SICK" / "SICK_test_annotated.txt", sick([first, (*second[:2], ""), third]))
    assert len(sts.read_task(tmp_path, "SICKRelatedness").gold) == 2


def test_identical_sentences_are_encoded_once_over_all_tasks(tmp_path):
    pairs = [("the cat", "the dog", 1), ("the dog", "the cat", 1), ("the cat", "the cat", 5), ("a bird", "the dog", 0)]
    write(tmp_path / "STS/STSBenchmark/sts-test.csv", sts_b(pairs))
    write(tmp_path / "SICK/SICK_test_annotated.txt", sick(pairs[::-1]))
    encode = WordVectors()
    results = sts.evaluate(encode, sts.read(str(tmp_path), ["STSBenchmark", "SICKRelatedness"])[0])
    assert sorted(encode.seen) == ["a bird", "the cat", "the dog"]
    assert [result["spearman"] for result in results.values()] == [
        pytest.approx(WordVectors().expected(pairs), abs=1e-4)
    ] * 2


def test_a_missing_data_set_is_named_and_there_is_no_average(tmp_path):
    write_year(tmp_path, "STS13")
    results, missing = score(tmp_path, "STS12", "STS13", "SICKRelatedness")
    assert (list(results), missing) == (["STS13"], ["STS12", "SICKRelatedness"])
    assert sts.average(results, missing) == {}


def test_the_average_is_the_mean_over_the_tasks(tmp_path):
    for task in ("STS12", "STS13"):
        write_year(tmp_path, task)
    write(tmp_path / "STS/STSBenchmark/sts-test.csv", sts_b(made_pairs(9, seed=8)))
    results, missing = score(tmp_path, "STS12", "STS13", "STSBenchmark")
    mean = sum(result["spearman"] for result in results.values()) / 3
    assert sts.average(results, missing) == {"average": pytest.approx(mean, abs=1e-4)}


def test_the_development_split_is_another_file_and_the_years_have_none(tmp_path):
    write_year(tmp_path, "STS12")
    files = {"STSBenchmark": ("STS/STSBenchmark/sts-dev.csv", sts_b), "SICKRelatedness": ("SICK/SICK_trial.txt", sick)}
    for seed, (name, layout) in enumerate(files.values()):
        write(tmp_path / name, layout(made_pairs(5 + seed, seed)))
        write(tmp_path / name.replace("dev", "test").replace("trial", "test_annotated"), layout(made_pairs(9, seed=9)))
    results, missing = score(tmp_path, "STS12", "STSBenchmark", "SICKRelatedness", split="dev")
    assert missing == ["STS12"]
    assert {task: result["pairs"] for task, result in results.items()} == {"STSBenchmark": 5, "SICKRelatedness": 6}
    for seed, result in enumerate(results.values()):
        assert result["spearman"] == pytest.approx(WordVectors().expected(made_pairs(5 + seed, seed)), abs=1e-4)


def test_sick_has_its_own_columns(tmp_path):
    write(tmp_path / "SICK/SICK_test_annotated.txt", sick([("one", "two", 3.3), ("three", "four", 1)]))
    found = sts.read_task(tmp_path, "SICKRelatedness")
    assert found[:2] == (["one", "three"], ["two", "four"])
    np.testing.assert_array_equal(found.gold, [3.3, 1.0])
    assert found.subsets == {}


def test_sts_b_has_no_quoting(tmp_path):
    write(tmp_path / "STS/STSBenchmark/sts-test.csv", sts_b([('"The cat', 'a "dog"', 2.5), ("sat", '"', 4)]))
    found = sts.read_task(tmp_path, "STSBenchmark")
    assert found[:2] == (['"The cat', "sat"], ['a "dog"', '"'])
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
    expected = pytest.approx(WordVectors().expected(pairs), abs=1e-4)
    assert (list(results), missing) == (["mine"], [])
    result = results["mine"]
    assert (result["spearman"], result["pairs"], result["subsets"]) == (expected, 6, {})
    both = {metric: result[metric] for metric in ("spearman", "pearson")}
    assert result["mean"] == result["wmean"] == both
    found = sts.read_graded_pairs(path)
    assert list(zip(found.first, found.second, found.gold, strict=True)) == pairs


def test_byte_order_mark_and_windows_line_ends_are_no_part_of_graded_pairs(tmp_path):
    text = "sentence1\tscore\tsentence2\na\t1\tb\nc\t2\td\n"
    (tmp_path / "mine.tsv").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert sts.read_graded_pairs(tmp_path / "mine.tsv")[:2] == (["a", "c"], ["b", "d"])


def scores(**tasks: float):
    return {task: {"spearman": value, "pairs": 2, "subsets": {}} for task, value in tasks.items()}


def test_empty_columns_at_the_end_of_a_line_are_left_out(tmp_path):
    (tmp_path / "mine.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\t\nc\td\t2\t\t\n")
    assert sts.read_graded_pairs(tmp_path / "mine.tsv")[:2] == (["a", "c"], ["b", "d"])
    (tmp_path / "mine.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\na\tb\t1\td\n")
    with pytest.raises(UserError, match="line 3: 4 columns, but the first line has 3"):
        sts.read_graded_pairs(tmp_path / "mine.tsv")


def test_the_table_has_the_papers_columns_and_the_average_last():
    results = scores(**{task: 10.0 * number + 0.126 for number, task in enumerate(reversed(TASKS))})
    head, rule, figures = (line.split("|") for line in sts.table(results, []).splitlines())
    assert [cell.strip() for cell in head] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg."]
    assert [cell.strip() for cell in figures] == ["60.13", "50.13", "40.13", "30.13", "20.13", "10.13", "0.13", "30.13"]
    assert len({len(line) for line in sts.table(results, []).splitlines()}) == 1
    assert set("".join(rule)) == {"-", "+"}


def test_the_table_has_a_dash_for_a_missing_task_and_for_the_average():
    head, _, figures = sts.table(scores(SICKRelatedness=50, STS12=70.5), ["STS15"]).splitlines()
    assert [cell.strip() for cell in head.split("|")] == ["STS12", "STS15", "SICK-R", "Avg."]
    assert [cell.strip() for cell in figures.split("|")] == ["70.50", "-", "50.00", "-"]


def test_the_table_of_one_task_has_no_average():
    assert sts.table(scores(mine=12.356), []).split() == ["mine", "------", "12.36"]


def test_the_table_has_a_row_for_each_protocol_and_the_regressor():
    parts = {"pearson": 1.0, "mean": {"spearman": 2, "pearson": 3}, "wmean": {"spearman": 4, "pearson": 5}}
    results = {task: {"spearman": 60.0, **parts} for task in ("STS12", "STSBenchmark")}
    results["STSBenchmark"]["regressor"] = {"spearman": 77, "pearson": 78}
    lines = sts.table(results, [], ["pearson", "spearman"], ["wmean", "all"]).splitlines()
    assert [[cell.strip() for cell in line.split("|")] for line in (lines[0], *lines[2:])] == [
        ["", "STS12", "STS-B", "Avg."],
        ["Pearson, wmean", "5.00", "5.00", "5.00"],
        ["Pearson, all", "1.00", "1.00", "1.00"],
        ["Pearson, regressor", "-", "78.00", "-"],
        ["Spearman, wmean", "4.00", "4.00", "4.00"],
        ["Spearman, all", "60.00", "60.00", "60.00"],
        ["Spearman, regressor", "-", "77.00", "-"],
    ]


@pytest.mark.parametrize("side", ["similarity", "gold"])
def test_a_constant_side_gives_0(side):
    constant, other = np.full(4, 0.5), np.array([1.0, 2.0, 3.0, 5.0])
    pair = (constant, other) if side == "similarity" else (other, constant)
    assert sts.spearman(*pair) == sts.pearson(*pair) == 0.0
    assert sts.spearman(other, other) == pytest.approx(100)
    assert sts.spearman(-other, other) == pytest.approx(-100)


def test_ties_share_their_rank():
    similarity, gold = np.array([0.1, 0.4, 0.4, 0.9]), np.array([1.0, 1.0, 3.0, 2.0])
    assert sts.spearman(similarity, gold) == pytest.approx(100 * 0.5)


@pytest.mark.parametrize("count", [2, 3, 30, 1379])
def test_it_is_scipy_s_to_the_last_bit(count):
    generator = np.random.default_rng(count)
    similarity, gold = generator.normal(size=count), np.round(generator.normal(size=count) + np.arange(count) % 2, 1)
    for some in (similarity, np.round(similarity, 1), gold):  # without ties and with some
        assert sts.spearman(some, gold) == 100 * scipy.stats.spearmanr(some, gold).statistic
    assert np.isnan(sts.spearman(np.append(similarity, np.nan), np.append(gold, 0.0)))


def test_cosines_are_of_length_free_vectors_and_0_for_a_zero_vector():
    first, second = (
        np.array([[3.0, 4.0], [0, 0], [1, 0]], np.float32),
        np.array([[30.0, 40.0], [1, 1], [0, 2]], np.float32),
    )
    np.testing.assert_allclose(sts.cosine(first, second), [1, 0, 0], atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(tmp_path, value):
    pairs = sts.read(str(write(tmp_path / "mine.tsv", sts_b(made_pairs(3, seed=0)))), ["STS12"])[0]

    def encode(sentences):
        embeddings = WordVectors()(sentences)
        embeddings[2, 1] = value
        return embeddings

    with pytest.raises(UserError, match="not finite"):
        sts.evaluate(encode, pairs)


def refused(data, *parts: str, tasks=("STS12",)) -> None:
    with pytest.raises(UserError) as error:
        sts.read(str(data), tasks)
    assert [part for part in parts if part not in str(error.value)] == [], str(error.value)


@pytest.mark.parametrize("number", ["five", "nan", "inf", "3,5"])
def test_a_score_that_is_no_number_is_refused_by_file_and_line(tmp_path, number):
    pairs = [("a", "b", 1), ("c", "d", number), ("e", "f", 2)]
    write_year(tmp_path, "STS12", MSRvid=pairs)
    refused(tmp_path, "STS.gs.MSRvid.txt: line 2", repr(number), "not a number")
    refused(write(tmp_path / "mine.tsv", sts_b(pairs)), "mine.tsv: line 2", repr(number), "not a number")
    write(tmp_path / "SICK/SICK_test_annotated.txt", sick(pairs))
    refused(tmp_path, "SICK_test_annotated.txt: line 3", repr(number), tasks=["SICKRelatedness"])


def test_scores_of_another_number_of_lines_are_refused(tmp_path):
    write_year(tmp_path, "STS12")
    write(tmp_path / "STS/STS12-en-test/STS.gs.MSRpar.txt", "1\n2\n")
    refused(tmp_path, "STS.input.MSRpar.txt has 6 lines", "STS.gs.MSRpar.txt has 2")


def test_a_line_of_one_sentence_is_refused_by_file_and_line(tmp_path):
    write_year(tmp_path, "STS12")
    write(tmp_path / "STS/STS12-en-test/STS.input.MSRpar.txt", "a\tb\n" * 4 + "the cat\n" + "a\tb\n")
    refused(tmp_path, "STS.input.MSRpar.txt: line 5", "two sentences", "tab")


@pytest.mark.parametrize(
    ("file", "task", "text", "parts"),
    [
        ("STS/STSBenchmark/sts-test.csv", "STSBenchmark", sts_b(made_pairs(2, 0)) + "a\tb\n", ["line 3", "2 tab", "7"]),
        ("SICK/SICK_test_annotated.txt", "SICKRelatedness", "head\n1\ta\n", ["line 2", "2 tab", "at least 4"]),
        ("STS/STSBenchmark/sts-test.csv", "STSBenchmark", sts_b(made_pairs(1, 0)), ["1 graded pairs", "two or more"]),
        ("SICK/SICK_test_annotated.txt", "SICKRelatedness", sick([]), ["0 graded pairs"]),
    ],
)
def test_a_damaged_single_file_is_refused_by_name(tmp_path, file, task, text, parts):
    write(tmp_path / file, text)
    refused(tmp_path, file, *parts, tasks=[task])


def test_a_missing_subset_is_named(tmp_path):
    write_year(tmp_path, "STS12")
    (tmp_path / "STS/STS12-en-test/STS.gs.MSRvid.txt").unlink()
    refused(tmp_path, "STS.gs.MSRvid.txt", "cannot be read")


def test_a_folder_without_sts_is_refused(tmp_path):
    refused(tmp_path, str(tmp_path), "STS12, SICKRelatedness", "data/downstream", tasks=["STS12", "SICKRelatedness"])


def test_data_that_is_not_there_is_refused(tmp_path):
    refused(tmp_path / "nowhere", str(tmp_path / "nowhere"), "no such folder or file")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty", "must name the columns"]),
        ("The cat sat.\nThe dog ran.\n", ["line 1", "sentence1, sentence2 and score"]),
        ("sentence1,sentence2,score\na,b,1\n", ["1 graded pairs"]),
        ("sentence1\tsentence2\tscore\na\tb\t1\n", ["1 graded pairs"]),
        ("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t1.0\n", ["all 2 scores are 1: no correlation"]),
        *(
            (f"sentence1\tsentence2\tscore\na\tb\t1\nc\td\t{bad}\n", ["line 3", f"the score '{bad}' is not"])
            for bad in ("nan", "inf", "-inf", "1e400", "1e308", "x")
        ),
        ("sentence1\tsentence2\tscore\na\tb\t1\nc\td\n", ["line 3", "2 columns", "first line has 3"]),
        ("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t2\te\n", ["line 3", "4 columns", "first line has 3"]),
    ],
)
def test_a_file_that_is_no_graded_pairs_is_refused(tmp_path, text, parts):
    path = write(tmp_path / "notes.txt", text)
    refused(path, str(path), *parts)


@pytest.mark.parametrize(
    ("task", "split", "pairs"),
    [
        ("STS12", "test", 3108),
        ("STS13", "test", 1500),
        ("STS14", "test", 3750),
        ("STS16", "test", 1186),
        ("STSBenchmark", "test", 1379),
        ("STSBenchmark", "dev", 1500),
        ("SICKRelatedness", "test", 4927),
        ("SICKRelatedness", "dev", 500),
    ],
)
def test_the_real_data_sets_have_their_numbers_of_pairs(senteval, task, split, pairs):
    found = sts.read_task(senteval, task, split)
    assert len(found.first) == len(found.second) == len(found.gold) == pairs
    assert all(sentence.strip() for sentence in found.first + found.second)
    assert 0 <= found.gold.min() <= 1
    assert 4.5 <= found.gold.max() <= 5
    assert sum(part.stop - part.start for part in found.subsets.values()) in (0, pairs)


@pytest.mark.optimized
@pytest.mark.slow
def test_all_equals_sentence_transformers_and_scipy(minilm, senteval):
    pytest.importorskip("sentence_transformers")
    from pathlib import Path

    from sentence_transformers import SentenceTransformer, models

    from simcse_jax.huggingface.load import load
    from simcse_jax.simcse import SimCSE

    tasks, _ = sts.read(str(senteval), ["STS13", "STSBenchmark"])  # the others agree too, and take minutes
    results = sts.evaluate(SimCSE(minilm, pooler="avg").encode, tasks)
    folder = Path(load(minilm).folder)
    transformer = models.Transformer(str(folder))
    other = SentenceTransformer(
        modules=[transformer, models.Pooling(transformer.get_word_embedding_dimension(), "mean")], device="cpu"
    )
    for task, pairs in tasks.items():
        first, second = (other.encode(side, show_progress_bar=False) for side in (pairs.first, pairs.second))
        cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
        expected = 100 * scipy.stats.spearmanr(cosines, pairs.gold).statistic
        assert results[task]["spearman"] == pytest.approx(expected, abs=0.01), task


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


@pytest.mark.parametrize("name", ["mine.tsv", "mine.csv"])
@pytest.mark.parametrize("separator", ["\t", ",", ";"])
@pytest.mark.filterwarnings("ignore:.*between its fields")
def test_graded_pairs_that_pandas_wrote_are_read_as_they_were(tmp_path, name, separator):
    pairs = [('"Stop," said the man', 'A man says "stop"', 4.0), ("a;b", "c,d", 0.5), ("no\ttab", "a\nline", 2.0)]
    table = pandas.DataFrame(pairs, columns=["sentence1", "sentence2", "score"])
    table[["score", "sentence2", "sentence1"]].to_csv(tmp_path / name, sep=separator, index=False)
    found = sts.read_graded_pairs(tmp_path / name)
    assert found.first_as_read == [first for first, *_ in pairs]
    assert found.second == ['A man says "stop"', "c,d", "a line"]
    assert found.gold.tolist() == [4.0, 0.5, 2.0]
    assert sts.is_graded(tmp_path / name)


def test_sts_b_that_pandas_wrote_again_has_the_same_pairs(tmp_path):
    pairs = [
        ('"Stop," said the man', 'A man says "stop"', 4.0),
        ('The "old" mill', "A mill", 2.0),
        ('"All."', "a", 1.0),
    ]
    original = write(tmp_path / "STS/STSBenchmark/sts-test.csv", sts_b(pairs))
    lines = [line.split("\t") for line in original.read_text().splitlines()]
    expected = sts.read_task(tmp_path, "STSBenchmark")
    pandas.DataFrame(lines).to_csv(original, sep="\t", index=False, header=False)
    assert '"""Stop,""' in original.read_text()
    found = sts.read_task(tmp_path, "STSBenchmark")
    assert (found.first, found.second) == (expected.first, expected.second)
    assert found.first == [first for first, *_ in pairs]
