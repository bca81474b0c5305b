import sys

import pytest

from simcse_jax.commands.evaluate_arguments import after_prefix, parse
from simcse_jax.errors import UserError
from simcse_jax.evaluation.tasks import TASKS, TRANSFER


@pytest.fixture
def parsed(monkeypatch):
    """The options of a command line."""

    def parsed(*arguments: str):
        monkeypatch.setattr(sys, "argv", ["evaluate", "--model", "none", *arguments])
        return parse()

    return parsed


def refused(parsed, message, *arguments):
    with pytest.raises(UserError) as error:
        parsed(*arguments)
    assert str(error.value) == message


def test_tasks_of_all_kinds_stand_in_one_list(parsed):
    tasks = "mteb:STS12, transfer,retrieval:a/b,STS13,mteb:NFCorpus,STS12,sts,mteb:STS12,retrieval:a/b:c"
    options = parsed("--data", "d", "--tasks", tasks)
    assert sorted(options.sts_tasks) == sorted(TASKS) and options.sts_tasks[:2] == ["STS13", "STS12"]
    assert options.transfer_tasks == list(TRANSFER)
    assert (options.folders, options.benchmarks) == (["a/b", "a/b:c"], ["STS12", "NFCorpus"])
    assert parsed("--tasks", "mteb:STS12").sts_tasks == []
    assert after_prefix([" x:1", "y", "x:1"], "x", "N", "a number") == (["y"], ["1"])


def test_a_regressor_without_its_tasks_is_refused(parsed):
    message = "--regressor is for STSBenchmark and SICKRelatedness; --tasks has neither"
    refused(parsed, message, "--data", "d", "--regressor", "--tasks", "STS12")


@pytest.mark.parametrize(
    ("tasks", "option", "value", "kind"),
    [
        ("TREC", "--metric", "pearson", "similarity"),
        ("TREC", "--aggregation", "wmean", "similarity"),
        ("STS12", "--transfer-protocol", "pytorch", "transfer"),
        ("TREC", "--metric", "ndcg@10", "retrieval"),
        ("STS12", "--documents", "10", "retrieval"),
        ("STS12", "--documents-seed", "1", "retrieval"),
        ("STS12", "--storage", "float16", "retrieval"),
        ("STS12", "--baseline", "none.json", "retrieval"),
    ],
)
def test_an_option_of_the_other_kind_of_task_is_refused(parsed, tasks, option, value, kind):
    shown = f"{option} {value}" if option == "--metric" else option
    message = f"{shown}: is for {kind} tasks, and --tasks has none"
    refused(parsed, message, "--data", "none", "--tasks", tasks, option, value)
    if kind != "transfer":  # tasks of mteb take none of them
        refused(parsed, message, "--tasks", "mteb:STS12", option, value)


def test_a_file_is_no_task_of_a_name(parsed, tmp_path):
    (tmp_path / "mine.tsv").write_text("sentence1\tsentence2\tscore\n")
    file = str(tmp_path / "mine.tsv")
    message = f"--tasks STS12: {file} is a file, scored under its own name; leave the task out, or give "
    refused(parsed, message + "SentEval's folder", "--data", file, "--tasks", "sts,STS12")
    assert parsed("--data", file).sts_tasks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "d"], "--data: is for similarity and transfer tasks, and --tasks has none"),
        (["--tasks", "mteb:"], "--tasks mteb:NAME: name a task of mteb"),
        (["--tasks", "mteb"], "--tasks: no task 'mteb'; the nearest one is mteb:NAME"),
        (
            ["--split", "dev"],
            "--split dev is for similarity and retrieval; --tasks mteb:STS12 makes its own use of development data",
        ),
        (
            ["--postprocess", "whitening", "--postprocess-data", "target"],
            "--postprocess: is for similarity and transfer; leave it out, or the tasks of retrieval and mteb",
        ),
    ],
)
def test_what_tasks_of_mteb_do_not_go_with_is_refused(parsed, arguments, message):
    refused(parsed, message, "--tasks", "mteb:STS12", *arguments)


def test_a_file_of_pairs_has_no_splits(parsed):
    message = f"--split dev: is for SentEval's folder, and {__file__} is a file; leave it out"
    refused(parsed, message, "--data", __file__, "--split", "dev")
    assert parsed("--data", __file__).args.split == "test"
    assert parsed("--data", "folder", "--split", "dev").args.split == "dev"
