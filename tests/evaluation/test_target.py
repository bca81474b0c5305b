import pytest

from simcse_jax.errors import UserError
from simcse_jax.evaluation import postprocess, sts
from simcse_jax.evaluation.target import read_all_splits


@pytest.fixture
def folder(tmp_path):
    """A SentEval folder with STS-B and one year."""
    for name in ("train", "dev", "test"):
        path = tmp_path / sts.SINGLE_FILES["STSBenchmark"][name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"g\tf\ty\t0\t{score}\t{name} {score} a\t{name} {score} b\n" for score in (1, 2)))
    year = tmp_path / "STS" / "STS13-en-test"
    year.mkdir(parents=True)
    for subset in sts.SUBSETS["STS13"]:
        (year / f"STS.input.{subset}.txt").write_text("".join(f"{subset} {i} a\t{subset} {i} b\n" for i in range(3)))
        (year / f"STS.gs.{subset}.txt").write_text("1\n\n2\n")  # one pair has no score
    return tmp_path


def test_all_splits_of_a_task_and_each_year_three_times(folder):
    found = read_all_splits(str(folder))
    assert list(found) == ["STS13", "STSBenchmark"]
    of = {name: sts.read_task(folder, "STSBenchmark", name) for name in ("train", "dev", "test")}
    assert found["STSBenchmark"] == [s for pairs in of.values() for s in (*pairs.first, *pairs.second)]
    year = found["STS13"]
    assert len(year) == 3 * 3 * 3 * 2 and year[:18] == year[18:36] == year[36:]
    assert "OnWN 1 a" in year  # the pair without a score


def test_a_task_is_fit_on_its_splits_and_another_task_on_its_own_sentences(folder):
    fit_on = postprocess.read("whitening", "target_all", 0, str(folder))
    pairs, _ = sts.read(str(folder), ["STSBenchmark"])
    assert len(set(fit_on.of_task("STSBenchmark", pairs["STSBenchmark"]))) == 12
    assert len(set(fit_on.of_task("other", pairs["STSBenchmark"]))) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "STS/STSBenchmark/sts-dev.csv").unlink(), "sts-dev.csv is missing; take target"),
        (
            lambda folder: (folder / "STS/STS13-en-test/STS.input.FNWN.txt").write_text("a\tb\nonly one\n"),
            "STS.input.FNWN.txt: line 2: expected two sentences",
        ),
    ],
)
def test_what_is_missing_or_damaged_is_named(folder, change, message):
    change(folder)
    with pytest.raises(UserError, match=message):
        read_all_splits(str(folder))


def test_a_file_of_pairs_has_one_set_and_nothing_has_none(corpus):
    with pytest.raises(UserError, match="is no folder of SentEval"):
        read_all_splits(str(corpus["dev"]))
    with pytest.raises(UserError, match="is no folder of SentEval"):
        postprocess.read("whitening", "target_all")
