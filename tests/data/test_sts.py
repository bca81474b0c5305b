import pytest
from support.data import refused
from support.senteval import write

from simcse_jax.data.examples import read_examples
from simcse_jax.data.scores import Scores
from simcse_jax.data.sts import SINGLE_FILES, SUBSETS, of_task
from simcse_jax.evaluation import postprocess

SCORED = {"scores": Scores("objective.cosent")}
SICK = "pair_ID\tsentence_A\tsentence_B\tscore\tjudgment"


@pytest.fixture
def folder(tmp_path):
    """A SentEval folder with all sets but STS15; one pair of each file of STS16 has no score."""
    for task, subsets in SUBSETS.items():
        for subset in subsets if task != "STS15" else ():
            lines = [f"{task} {subset} {number} a\t{task} {subset} b" for number in range(2)]
            write(tmp_path / f"STS/{task}-en-test/STS.input.{subset}.txt", lines)
            write(tmp_path / f"STS/{task}-en-test/STS.gs.{subset}.txt", ["", "1.0"] if task == "STS16" else ["2", "1"])
    for split, file in SINGLE_FILES["STSBenchmark"].items():
        write(tmp_path / file, [f"g\tf\ty\t0\t1.0\tB {split} a\tB {split} b\ta source"])
    for split, file in SINGLE_FILES["SICKRelatedness"].items():
        write(tmp_path / file, [SICK, f"1\tS {split} a\tS {split} b\t1\tN"])
    return tmp_path


def test_the_real_sets_are_consert_s_sentences_without_sts15(senteval):
    """44,596 pairs in all, of which the data here lack the 8,500 of STS15."""
    examples = read_examples(f"sts:{senteval}")
    assert (len(examples), examples.blank) == (89_192 - 2 * 8500, 0)
    examples = read_examples(f"sts:{senteval}:STSBenchmark", **SCORED)
    assert (len(examples), examples.scores.min(), examples.scores.max()) == (5749, 0.0, 5.0)


def test_all_sentences_of_all_splits_are_one_column_and_what_is_missing_is_named(folder, tmp_path, capsys):
    refused("sts:", "sts:: no STS set there")
    (tmp_path / "empty").mkdir()
    refused(f"sts:{tmp_path}/empty", "no STS set there")
    for file, line in (
        ("STS/STS13-en-test/STS.input.FNWN.txt", " has 3 lines, STS.gs.FNWN.txt has 2"),
        ("SICK/SICK_train.txt", ": line 3: 1 tab-separated columns, expected at least 4"),
    ):
        path = folder / file
        text = path.read_text()
        path.write_text(text + "alone\n")
        refused(f"sts:{folder}", f"{path}{line}")
        path.unlink()
        refused(f"sts:{folder}", f"{path}: cannot be read")
        path.write_text(text)
    examples = read_examples(f"sts:{folder}")
    ((column),) = examples.columns
    assert "STS15 not found, and left out" in capsys.readouterr().out
    assert len(column) == 4 * (5 + 3 + 6 + 5) + 2 * 3 + 2 * 3
    assert column[:2] == ["STS12 MSRpar 0 a", "STS12 MSRpar b"] and column.count("STS16 plagiarism b") == 2
    assert "STS16 plagiarism 0 a" in column  # without a score
    tail = [f"{name} {split} {side}" for name in "BS" for split in ("train", "dev", "test") for side in "ab"]
    assert column[-12:] == tail
    write(tmp_path / "more.txt", ["eins", "zwei"])
    assert read_examples(f"sts:{folder},{tmp_path}/more.txt").columns[0][-3:] == ["S test b", "eins", "zwei"]
    assert postprocess.read("whitening", f"sts:{folder}").sentences == column


@pytest.fixture
def graded(tmp_path):
    """STS13, of which each file has a pair without a score; STS-B's and SICK-R's training sets."""
    for subset in SUBSETS["STS13"]:
        write(tmp_path / f"STS/STS13-en-test/STS.input.{subset}.txt", [f"{subset} a\t{subset} b", "c\td\tits source"])
        write(tmp_path / f"STS/STS13-en-test/STS.gs.{subset}.txt", ["2.5", ""])
    lines = ['g\tf\ty\t0\t1.0\tB "a\tB b\ta source', "", "g\tf\ty\t1\t4.0\tB c\tB d"]
    write(tmp_path / "STS/STSBenchmark/sts-train.csv", lines)
    write(tmp_path / "SICK/SICK_trial.txt", [SICK, "1\tS a\tS b\t3\tN"])
    return tmp_path


def test_the_pairs_of_a_set_have_their_scores_and_what_is_missing_is_named(graded):
    read = {name: read_examples(f"sts:{graded}:{name}", **SCORED) for name in ("STS13", "STSBenchmark")}
    assert read["STSBenchmark"].columns == (['B "a', "B c"], ["B b", "B d"])
    assert read["STSBenchmark"].scores.tolist() == [1.0, 4.0]
    assert read["STS13"].columns[0] == [f"{subset} a" for subset in SUBSETS["STS13"]]
    assert read["STS13"].scores.tolist() == [2.5] * 3 and read["STS13"].unscored == 3
    sick = read_examples(f"sts:{graded}:SICKRelatedness:dev", **SCORED)
    assert (sick.columns, sick.scores.tolist()) == ((["S a"], ["S b"]), [3.0])
    both = read_examples(f"sts:{graded}:STSBenchmark:train,sts:{graded}:STS13:test", **SCORED)
    assert len(both) == 5 and len(read_examples(f"sts:{graded}:STSBenchmark").columns) == 2  # pairs, without scores
    assert of_task("a/b") is None and of_task("a:b") is None
    assert of_task("a:STS12") == ("a", "STS12", "test") and of_task("gs://b:STSBenchmark:dev")[2] == "dev"
    gold = graded / "STS/STS13-en-test/STS.gs.FNWN.txt"
    (graded / "STS/STSBenchmark/sts-dev.csv").write_text("a\tb\n")
    for name, content, *parts in (
        (":STS13:dev", "2.5\n", "no split 'dev'"),
        (":STSBenchmark:test", "2.5\n", "sts-test.csv: cannot be read"),
        (":STS12", "2.5\n", "STS.input.MSRpar.txt"),
        ("", "2.5\n", "no scores, but objective.cosent needs them"),
        (":STSBenchmark:dev", "2.5\n", "line 1: 2 tab-separated columns, expected at least 7"),
        (":STS13", "2.5\nmuch\n", "STS.gs.FNWN.txt: line 2: the field 'score' holds 'much'"),
        (":STS13", "2.5\n", "has 2 lines, STS.gs.FNWN.txt has 1"),
    ):
        gold.write_text(content)
        refused(f"sts:{graded}{name}", *parts, options=SCORED)
