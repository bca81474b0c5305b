import contextlib
import csv
import json
import os
import re
import shutil
import signal
import unittest
from unittest.mock import Mock

import jax
import numpy as np
import pytest
from support.jobs import another_job
from support.listed import record
from support.senteval import write_similarity
from support.sweeps import sweep_text

from simcse_jax.commands import sweep
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.config.flags import parse
from simcse_jax.config.sections import Section
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import Preempted, UserError
from simcse_jax.host.locks import held
from simcse_jax.training.run import train_and_evaluate
from simcse_jax.training.sweeps import runner
from simcse_jax.training.sweeps.variants import Variant, load_variants, read_sweep, sweep_defaults

VARIANTS = """
    Variant("a", {}, {"stsb_dev": 50.0}),
    Variant("b", {"model.dropout": 0.3, "objective.info_nce.temperature": 0.2, "train.learning_rate": 3e-4}),
    Variant("wild", {"train.learning_rate": 1e30, "train.max_grad_norm": 0.0}),
"""
STEPS = 8
TAME = "--config.sweep.only=a,b"
DRAW_ONLY = "--config.sweep.run=False"
MANY = ("STS12", "STS12_wmean_pearson", "STS15", "STSBenchmark", "sts_avg", "stsb_dev", "sickr_dev", "alignment")


@pytest.fixture(scope="module", autouse=True)
def without_pictures():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simcse_jax.training.sweeps.table.plot", lambda *_: {"png": b"", "svg": b""})
        yield


@pytest.fixture(scope="module")
def file(tiny_bert, corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "tiny.py"
    text = sweep_text(tiny_bert, corpus, VARIANTS, steps=STEPS, seeds=(1, 2))
    path.write_text(text.replace("max_length = 16", "max_length = 15"))  # no other test compiles this step
    return path


def run(file, workdir, *more):
    return sweep.run(["--config", str(file), "--workdir", str(workdir), *more])


def all_runs(file, workdir):
    config = parse(["--config", str(file), "--workdir=w"])[0]
    return runner.all_runs(read_sweep(config, load_variants(str(file))), config.sweep, workdir)


def read(workdir, variant, seed):
    folder = workdir / variant / f"seed{seed}"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    scores = {line["step"]: line["eval/dev"] for line in lines if "eval/dev" in line}
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return losses, scores, json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def finished(file, tmp_path_factory):
    """A sweep that was stopped after its first run and resumed, and all that was compiled."""
    workdir = tmp_path_factory.mktemp("runs") / "single"

    def stop(*args):
        if list(workdir.glob("*/*/result.json")):
            raise KeyboardInterrupt
        return train_and_evaluate(*args)

    with jax.log_compiles(), unittest.TestCase().assertLogs("jax._src.dispatch") as logged:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(runner, "train_and_evaluate", stop)
            run(file, workdir, TAME)
        run(file, workdir, TAME)
    return workdir, [text for text in logged.output if "Finished XLA compilation" in text]


@pytest.mark.slow
def test_the_table_has_every_run_and_runs_that_differ_in_numbers_compile_once(finished):
    workdir, compiled = finished
    text = (workdir / "tiny.md").read_text()
    assert "| a |" in text and "| b |" in text and "(2)" in text and "simcse-jax sweep" in text
    assert "| dev.tsv | Δ | p |" in text and "50.0" not in text  # the paper's value is of other pairs
    assert {path.suffix for path in workdir.iterdir() if path.is_file()} == {".md", ".csv", ".png", ".svg", ".html"}
    best = [max(score for step, score in read(workdir, "a", seed)[1].items() if step) for seed in (1, 2)]
    assert f"a,dev.tsv,2,{np.mean(best):.10g}" in (workdir / "tiny.csv").read_text()
    assert sum("jit(update)" in text for text in compiled) == 1, compiled


@pytest.mark.slow
def test_what_is_done_is_skipped_and_a_changed_config_is_refused(finished, file, monkeypatch, capsys):
    workdir, only_a = finished[0], "--config.sweep.only=a"
    monkeypatch.setattr(runner, "train_and_evaluate", None)
    run(file, workdir, TAME)
    assert "4 runs, 4 of them done" in capsys.readouterr().out
    run(file, workdir, only_a, "--config.sweep.seeds=1,3", DRAW_ONLY)
    assert "2 runs, 1 of them done" in capsys.readouterr().out
    assert "(1)" in (workdir / "tiny.md").read_text() and not (workdir / "a/seed3").exists()
    with pytest.raises(UserError, match=r"sweep\.run=False: none of the 1 runs in .* is finished; run some first"):
        run(file, workdir, only_a, "--config.sweep.seeds=3", DRAW_ONLY)
    with pytest.raises(UserError, match=r"train\.batch_size was 8, is 16"):
        run(file, workdir, TAME, "--config.train.batch_size=16")
    with another_job(held(workdir)), pytest.raises(UserError, match=f"{workdir}: another job"):
        run(file, workdir, TAME)


def changed(folder, **values):
    about = json.loads((folder / "run.json").read_text())
    for part, (name, value) in values.items():
        about[part][name] = value
    (folder / "run.json").write_text(json.dumps(about))


@pytest.mark.slow
def test_runs_of_several_machines_are_counted_and_of_other_contents_refused(finished, file, tmp_path):
    workdir = shutil.copytree(finished[0], tmp_path / "copy")
    changed(workdir / "b/seed2", device=("kind", "H100"), versions=("jax", "0.11"))
    table = run(file, workdir, TAME, DRAW_ONLY).read_text()
    three, one = table.splitlines()[-2:]
    assert re.fullmatch(r"- 3 runs: simcse_jax .* × cpu", three)
    assert re.fullmatch(r"- 1 run: simcse_jax .*, jax 0\.11, .* × H100", one)
    for field in ("data.train", "eval.data", "model.init_from"):
        other = shutil.copytree(workdir, tmp_path / field)
        for seed in (1, 2):
            changed(other / f"b/seed{seed}", sha256=(field, "other"))
        said = rf"b \(seed 1\) and a \(seed 1\) read different contents of config\.{field}="
        with pytest.raises(UserError, match=said):
            run(file, other, TAME, DRAW_ONLY)
        assert (other / "tiny.md").read_text() == table


def test_a_run_that_goes_wrong_does_not_stop_the_others(file, tmp_path, monkeypatch, capsys):
    def fail(config, workdir):
        raise UserError(f"seed {config.seed}: no luck")

    monkeypatch.setattr(runner, "train_and_evaluate", fail)
    first = r"4 of 4 runs failed; the first: a \(seed 1\): seed 1: no luck"
    with pytest.raises(UserError, match=f"{first}$"):
        run(file, tmp_path, TAME)
    assert capsys.readouterr().out.count("no luck") == 4 and "| a | –" in (tmp_path / "tiny.md").read_text()
    full = Mock(side_effect=UserError("the disk is full"))
    monkeypatch.setattr("simcse_jax.training.sweeps.table.write", full)
    with pytest.raises(UserError, match=f"{first}; and the disk is full"):
        run(file, tmp_path, TAME)


def test_a_sigterm_ends_the_sweep_also_after_the_last_step_of_a_run(file, tmp_path, monkeypatch):
    calls = []

    def signalled(config, workdir):
        calls.append(workdir)
        with contextlib.closing(Preemption()) as preemption:
            preemption.reached(19)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(runner, "train_and_evaluate", signalled)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted):
        run(file, tmp_path, TAME)
    assert len(calls) == 1 and signal.getsignal(signal.SIGTERM) == before


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    return tmp_path


def rows(*each):
    found = []
    for number, fields in enumerate(each):
        config = default_config()
        base = {"data.train": "pairs.tsv", "eval.data": "pairs.tsv", "eval.tasks": (), "parallel.devices": 1}
        config.update_from_flattened_dict(base | fields)
        found.append((Variant(f"row {number}", {}), validate(config)))
    return found


def columns(*names, **fields):
    section = sweep_defaults("", "", names, "row 0")
    section.update(fields)
    return Section.of({"sweep": section}).sweep


HELD_OUT = {"data.held_out": 100, "eval.against_start": True, "eval.data": ""}
GRADED = {"objective.cosent.weight": 1.0, "objective.info_nce.weight": 0.0}
FOUND = {"eval.data": "", "eval.development": "retrieval", "eval.retrieval.data": "pairs.tsv"}
WHITE, MEASURED = {"eval.postprocess": "whitening"}, {"analysis.every": 5, "eval.every": 10}
WRONG_ROWS = [
    ({"eval.data": ""}, "eval.data is empty"), ({"parallel.processes": 0}, "a sweep runs in one process"),
    ({"eval.data": "no/such"}, "variant 'row 0': config.eval.data=no/such: no such file"),
    ({"data.train": "no/such.txt"}, "config.data.train=no/such.txt: no such file"),
    ({"data.train": "*.csv"}, "train=*.csv: no such file"), ({"data.train": "sts:none:STS12:test"}, "no such file"),
    ({"eval.retrieval.data": "no/such"}, "config.eval.retrieval.data=no/such: no such file"),
    (WHITE | {"eval.postprocess_data": "no/such.txt"}, "eval.postprocess_data=no/such.txt: no such file"),
    (MEASURED | {"analysis.data": "no/such.txt"}, "config.analysis.data=no/such.txt: no such file"),
    (FOUND, "the metric stsb_dev needs config.eval.data"),
]  # fmt: skip
WRONG_COLUMNS = [
    ({}, "after", "eval.against_start"), ({}, "held_out_dev", "data.held_out"), ({}, "sts_avg", "eval.data: SentEval"),
    ({}, "transfer_avg", "eval.transfer"), ({}, "anisotropy", "analysis.every; set it"),
    ({"eval.data": ".", "eval.tasks": ("STS13",)}, "STS12", "eval.data: SentEval's folder, and its eval.tasks; set it"),
    ({"analysis.every": 3, "eval.every": 10}, "anisotropy", "analysis.every: a divisor of eval.every"),
    ({}, "retrieval_map@5", "eval.retrieval.data"), (FOUND, "retrieval_map@5", "eval.retrieval.measures: map@5"),
    ({}, "retrieval_dev", "eval.development=retrieval"), (FOUND, "uniformity", "eval.data"),
    (HELD_OUT | {"eval.every": 0}, "held_out_dev", "eval.every; set it, or config.sweep.metrics=after"),
    (HELD_OUT, "sts_avg", "eval.data: SentEval's folder, and its eval.tasks; set it, or config.sweep.metrics=after"),
    (HELD_OUT | {"eval.against_start": False}, "STS12", "eval.data: SentEval's folder"),
    (HELD_OUT | GRADED, "retrieval_ndcg@10", "eval.retrieval.data"),
]  # fmt: skip
WRONG_COLUMNS = [(fields, metric, f"needs config.{message}") for fields, metric, message in WRONG_COLUMNS]
REFUSED = [(fields, "stsb_dev", message) for fields, message in WRONG_ROWS] + WRONG_COLUMNS


@pytest.mark.parametrize(("fields", "metric", "message"), REFUSED)
def test_a_mistake_that_stops_every_run_is_reported_before_the_first(fields, metric, message, here):
    with pytest.raises(UserError) as caught:
        runner.all_runs(rows(fields), columns(metric), here / "sweep")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_a_run_measures_and_reads_is_accepted_but_not_rows_scored_on_other_pairs_or_chosen_on_them(here):
    """Also patterns, folders with a task, and buckets, which are not asked."""
    (here / "STS").mkdir()
    names = ("*.tsv", "sts:STS:STS12:test", "sts:STS", "gs://bucket/a.txt", "hf:x")
    runs = runner.all_runs(rows(*({"data.train": name} for name in names)), columns("stsb_dev"), here / "sweep")
    folders = [run.workdir.relative_to(here).as_posix() for run in (runs[0], runs[5])]
    assert folders == ["sweep/row 0/seed42", "sweep/row 0/seed43"]
    for metric in ("held_out_dev", "after", "retrieval_ndcg@10"):
        assert runner.all_runs(rows(HELD_OUT), columns(metric), here / "sweep")
    assert runner.all_runs(rows(MEASURED), columns("anisotropy"), here / "sweep")
    assert runner.all_runs(rows(WHITE | {"eval.postprocess_data": "target"}), columns("stsb_dev"), here / "sweep")
    of_file = {"eval.against_start": True}
    for base, fields in ((HELD_OUT, (0, 10)), (HELD_OUT, (10, 0)), (of_file, (10, 0))):
        with pytest.raises(UserError, match="one of the variants 'row 0' and 'row 1' would be scored on half"):
            each = rows(*(base | {"eval.every": every} for every in fields))
            runner.all_runs(each, columns("after"), here / "sweep")
        for same in (0, 10):
            runner.all_runs(rows(*[base | {"eval.every": same}] * 2), columns("after"), here / "sweep")
    # A row that was chosen on what is the test set, and rows of other contents.
    ((variant, config),) = rows(HELD_OUT | {"eval.every": 0})
    runner.all_runs([(variant, config)], columns("after"), here / "sweep")
    chosen = variant._replace(chosen_on=("held_out_dev",))
    with pytest.raises(UserError, match=r"'row 0': the metric held_out_dev needs config\.eval\.every"):
        runner.all_runs([(chosen, config)], columns("after"), here / "sweep")
    runs = runner.all_runs(rows(HELD_OUT, HELD_OUT), columns("after"), here / "sweep")[:2]
    for number, each in enumerate(runs):
        each.workdir.mkdir(parents=True)
        about = record(each.config, sha256={"eval.retrieval.data": f"{number}"})
        (each.workdir / "run.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"read different contents of config\.data\.held_out=100, so a table"):
        runner.check_same_data(runs)


def test_more_that_is_refused_before_scores_of_runs_without_a_checkpoint_are_dropped(file, here, tmp_path):
    with pytest.raises(UserError, match=r"is a sweep; run it with simcse-jax sweep"):
        validate(parse(["--config", str(file), "--workdir=w"])[0])
    with pytest.raises(UserError, match="no such file"):
        run(file, here / "sweep", "--config.data.train=no/such")
    assert not (here / "sweep").exists()


def test_the_line_below_the_table_names_what_all_have(file, tmp_path):
    runs = all_runs(file, tmp_path)
    plain = runner.describe_runs(runs)
    assert plain.startswith("model.init_from=") and "train.batch_size=8, train.max_steps=8" in plain
    assert "learning_rate" not in plain and "transfer" not in plain and runner.describe_runs([]) == ""
    found = ".data=x, eval.retrieval.split=test, eval.retrieval.documents=0, eval.retrieval.storage"
    cases = ("eval.transfer", True, "eval.transfer_protocol=sklearn"), ("data.held_out", 9, "data.held_out=9")
    for field, value, end in (*cases, ("eval.retrieval.data", "x", found)):
        changed = [each._replace(config=each.config.replaced(field, value)) for each in runs]
        assert end in runner.describe_runs(changed)
    untrained = runs[0].config.replaced("train.max_steps", 0).replaced("train.epochs", 0)
    assert "train." not in runner.describe_runs([each._replace(config=untrained) for each in runs])

    def names(runs):
        return len({runner._source_values(each, "data.train") for each in runs})

    assert names(runs) == 1
    runs = [each._replace(config=each.config.replaced("data.subsample", 8)) for each in runs]
    assert names(runs) == 2
    runs[0] = runs[0]._replace(config=runs[0].config.replaced("objective.softmax_nli.weight", 1.0))
    assert names(runs) == 3


@pytest.mark.slow
def test_rows_that_train_nothing_and_post_processing(file, tmp_path, capsys):
    path, content = tmp_path / "untrained.py", file.read_text().partition("def get_variants")[0]
    path.write_text(f"""{content}
def get_variants():
    nothing = {{"train.epochs": 0, "train.max_steps": 0, "data.train": "no/such.txt"}}
    white = {{"eval.postprocess": "whitening", "eval.postprocess_data": "target", "eval.postprocess_dimensions": 4}}
    return Variant("a", nothing, {{"stsb_dev": 50.0}}), Variant("white", nothing | white), Variant("both", white)
""")
    fields = ("sweep.seeds=1", "train.epochs=1", "train.max_steps=2")
    changed = [f"--config.{field}" for field in fields]
    run(path, tmp_path / "sweep", *changed)
    dev = {}
    for name in ("a", "white", "both"):
        _, scores, result = read(tmp_path / "sweep", name, 1)
        dev[name] = result["dev"]["spearman"]
        assert list(scores) == ([0] if name != "both" else [0, 2])
        assert f"{name},dev.tsv,1,{dev[name]:.8g}"[:-2] in (tmp_path / "sweep" / "untrained.csv").read_text()
    assert len({round(score, 2) for score in dev.values()}) == 3
    capsys.readouterr()
    run(path, tmp_path / "sweep", *changed)
    assert "3 runs, 3 of them done" in capsys.readouterr().out


@pytest.mark.slow
def test_a_table_of_every_kind_of_column(tiny_bert, corpus, tmp_path):
    """Tasks that are there and one that is missing, averages, extra scores, and a row that is quoted."""
    senteval = write_similarity(tmp_path / "senteval", corpus["dev"])
    rows = 'Variant("a", {"train.epochs": 0, "train.max_steps": 0}, {"STS12": 39.7, "sts_avg": 56.7}),'
    rows += 'Variant("GloVe", {}, {"STS12": 55.14, "sts_avg": 61.32}, quoted=True),'
    path = tmp_path / "many.py"
    path.write_text(sweep_text(tiny_bert, corpus | {"dev": senteval}, rows, steps=2, seeds=(1,)))
    columns = f"--config.sweep.metrics={','.join(MANY)}"
    run(path, tmp_path / "sweep", "--config.sweep.metrics=STS12")
    stored = tmp_path / "sweep/a/seed1/result.json"
    scored = json.loads(stored.read_text())
    assert "alignment" not in scored  # it costs nothing
    scored["STS12"]["spearman"] = 12.5
    stored.write_text(json.dumps(scored))
    run(path, tmp_path / "sweep", columns)  # the finished run is scored on what it lacks, no more
    result = json.loads(stored.read_text())
    lines = csv.DictReader((tmp_path / "sweep/many.csv").open())
    found = {line["metric"]: line for line in lines if line["variant"] == "a"}
    assert result["STS12"]["spearman"] == 12.5
    tasks = [result[task]["spearman"] for task in ("STS12", "STSBenchmark", "SICKRelatedness")]
    values = {"STS12": tasks[0], "STS12_wmean_pearson": result["STS12"]["wmean"]["pearson"], "STSBenchmark": tasks[1]}
    values |= {"STS avg., 3 of 7": np.mean(tasks), "sickr_dev": result["sickr_dev"], "alignment": result["alignment"]}
    assert {name: float(found[name]["mean"]) for name in values} == pytest.approx(values)
    assert (found["STS15"]["mean"], found["STS avg., 3 of 7"]["paper"], found["STS12"]["paper"]) == ("", "", "39.7")
    shutil.rmtree(tmp_path / "sweep/a/seed1/checkpoints")  # now the model of these scores is lost
    stored.write_text(json.dumps(scored))
    run(path, tmp_path / "sweep", columns)
    assert json.loads(stored.read_text())["STS12"]["spearman"] != 12.5
    text = (tmp_path / "sweep/many.md").read_text()
    assert "| GloVe (quoted) | 55.14 | – |" in text and "without STS13, STS14, STS15, STS16." in text
    assert "56.7" not in text and "61.32" not in text and not (tmp_path / "sweep/GloVe").exists()
    run(path, tmp_path / "quoted", columns, "--config.sweep.only=GloVe")
    assert "nothing is run" in (tmp_path / "quoted/many.md").read_text()
