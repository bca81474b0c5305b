import pytest
from support.data import refused
from support.senteval import write

from simcse_jax.data.examples import read_examples
from simcse_jax.data.scores import Scores
from simcse_jax.data.sts_pairs import of_task
from simcse_jax.data.sts_texts import SUBSETS

SCORES = Scores("objective.cosent")


@pytest.fixture
def folder(tmp_path):
    """STS13, of which each file has a pair without a score; STS-B's and SICK-R's training sets."""
    for subset in SUBSETS["STS13"]:
        write(tmp_path / f"STS/STS13-en-test/STS.input.{subset}.txt", [f"{subset} a\t{subset} b", "c\td\tits source"])
        write(tmp_path / f"STS/STS13-en-test/STS.gs.{subset}.txt", ["2.5", ""])
    lines = ['g\tf\ty\t0\t1.0\tB "a\tB b\ta source', "", "g\tf\ty\t1\t4.0\tB c\tB d"]
    write(tmp_path / "STS/STSBenchmark/sts-train.csv", lines)
    write(tmp_path / "SICK/SICK_trial.txt", ["pair_ID\tsentence_A\tsentence_B\tscore\tjudgment", "1\tS a\tS b\t3\tN"])
    return tmp_path


def test_the_pairs_of_a_set_have_their_scores(folder):
    read = {
        task: read_examples(f"sts:{folder}:{task}", scores=SCORES)
        for task in ("STS13", "STSBenchmark", "SICKRelatedness:dev")
    }
    assert read["STSBenchmark"].columns == (['B "a', "B c"], ["B b", "B d"])
    assert read["STSBenchmark"].scores.tolist() == [1.0, 4.0]
    assert read["SICKRelatedness:dev"].columns == (["S a"], ["S b"])
    assert read["SICKRelatedness:dev"].scores.tolist() == [3.0]
    assert read["STS13"].columns[0] == [f"{subset} a" for subset in SUBSETS["STS13"]]
    assert read["STS13"].scores.tolist() == [2.5] * 3 and read["STS13"].unscored == 3
    both = read_examples(f"sts:{folder}:STSBenchmark:train,sts:{folder}:STS13:test", scores=SCORES)
    assert len(both) == 5 and len(read_examples(f"sts:{folder}:STSBenchmark").columns) == 2  # pairs, without scores


def test_the_real_training_set(senteval):
    examples = read_examples(f"sts:{senteval}:STSBenchmark", scores=SCORES)
    assert (len(examples), examples.scores.min(), examples.scores.max()) == (5749, 0.0, 5.0)


def test_a_name_has_a_task_and_a_split():
    assert of_task("a/b") is None and of_task("a:b") is None
    assert of_task("a:STS12") == ("a", "STS12", "test") and of_task("gs://b:STSBenchmark:dev")[2] == "dev"


def test_what_is_missing_or_damaged_is_named(folder):
    options = {"scores": SCORES}
    refused(f"sts:{folder}:STS13:dev", "no split 'dev'; the nearest one is test", options=options)
    refused(f"sts:{folder}:STSBenchmark:test", "no file", "sts-test.csv", options=options)
    refused(f"sts:{folder}:STS12", "STS.input.MSRpar.txt", "SentEval's data/downstream", options=options)
    refused(f"sts:{folder}", "no scores, but objective.cosent needs them", options=options)
    gold = folder / "STS/STS13-en-test/STS.gs.FNWN.txt"
    gold.write_text("2.5\nmuch\n")
    refused(f"sts:{folder}:STS13", "STS.gs.FNWN.txt: line 2: the field 'score' holds 'much'", options=options)
    gold.write_text("2.5\n")
    refused(f"sts:{folder}:STS13", "has 2 lines, STS.gs.FNWN.txt has 1", options=options)
    (folder / "STS/STSBenchmark/sts-train.csv").write_text("a\tb\n")
    refused(f"sts:{folder}:STSBenchmark", "line 1: 2 tab-separated columns, expected at least 7", options=options)
