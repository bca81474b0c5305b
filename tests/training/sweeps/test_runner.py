"""Whole sweeps of a tiny model, through the command's own `main`."""

import contextlib
import csv
import itertools
import json
import logging
import os
import re
import shutil
import signal
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support import write_model
from support.beir import write_beir
from support.jobs import another_job
from support.models import add_language_model, add_mask_token
from support.senteval import write, write_all, write_similarity
from support.sweeps import sweep_text

from simcse_jax.commands import sweep
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.config.flags import parse
from simcse_jax.config.sections import Section
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import Preempted, UserError
from simcse_jax.host.locks import held
from simcse_jax.models.platforms import tracing_for
from simcse_jax.runs.loading import load_model
from simcse_jax.training.loop import Training
from simcse_jax.training.run import train_and_evaluate
from simcse_jax.training.sweeps import runner
from simcse_jax.training.sweeps.variants import Variant, load_variants, read_sweep, sweep_defaults

VARIANTS = """
    Variant("a", {}, {"stsb_dev": 50.0}),
    Variant("b", {"model.dropout": 0.3, "objective.info_nce.temperature": 0.2, "train.learning_rate": 3e-4}),
    Variant("wild", {"train.learning_rate": 1e30, "train.max_grad_norm": 0.0}),
"""


@pytest.fixture(scope="module")
def file(tiny_bert, corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "tiny.py"
    path.write_text(sweep_text(tiny_bert, corpus, VARIANTS, steps=20, seeds=(1, 2)))
    return path


TAME = "--config.sweep.only=a,b"


def run(monkeypatch, file, workdir, *more):
    monkeypatch.setattr("sys.argv", ["sweep", "--config", str(file), "--workdir", str(workdir), *more])
    sweep.main()


def read(workdir, variant, seed):
    folder = workdir / variant / f"seed{seed}"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    scores = {line["step"]: line["eval/dev"] for line in lines if "eval/dev" in line}
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return losses, scores, (folder / "result.json").read_text()


@pytest.fixture(scope="module")
def finished(file, tmp_path_factory):
    """A sweep that was stopped after its first run and resumed, and all that was compiled."""
    workdir = tmp_path_factory.mktemp("runs") / "single"
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger = logging.getLogger("jax._src.dispatch")
    logger.addHandler(handler)
    jax.clear_caches()  # another test may have compiled the same step
    with pytest.MonkeyPatch.context() as patch, jax.log_compiles():

        def stop(*args):
            if stop.runs:
                raise KeyboardInterrupt
            stop.runs.append(args)
            train_and_evaluate(*args)

        stop.runs = []
        patch.setattr(runner, "train_and_evaluate", stop)
        with pytest.raises(KeyboardInterrupt):
            run(patch, file, workdir, TAME)
    with pytest.MonkeyPatch.context() as patch, jax.log_compiles():
        run(patch, file, workdir, TAME)
    logger.removeHandler(handler)
    return workdir, [text for text in records if "Finished XLA compilation" in text]


def test_the_table_has_every_run(finished):
    workdir, _ = finished
    text = (workdir / "tiny.md").read_text()
    assert "| a |" in text and "| b |" in text and "(2)" in text and "simcse-jax sweep" in text
    assert "| dev.tsv | Δ | p |" in text and "50.0" not in text  # the paper's value is of other pairs
    assert {path.suffix for path in workdir.iterdir() if path.is_file()} == {".md", ".csv", ".png", ".svg"}
    best = [max(score for step, score in read(workdir, "a", seed)[1].items() if step) for seed in (1, 2)]
    assert f"a,dev.tsv,2,{np.mean(best):.10g}" in (workdir / "tiny.csv").read_text()


def test_runs_that_differ_in_numbers_compile_once(finished):
    _, compiled = finished
    assert sum("jit(update)" in text for text in compiled) == 1, compiled


def test_what_is_done_is_skipped_and_a_changed_config_is_refused(finished, file, monkeypatch, capsys):
    workdir, _ = finished
    monkeypatch.setattr(runner, "train_and_evaluate", None)
    run(monkeypatch, file, workdir, TAME)
    assert "4 runs, 4 of them done" in capsys.readouterr().out
    run(monkeypatch, file, workdir, "--config.sweep.only=a")
    assert "2 runs, 2 of them done" in capsys.readouterr().out
    run(monkeypatch, file, workdir, "--config.sweep.only=a", "--config.sweep.seeds=1,3", "--config.sweep.run=False")
    assert "2 runs, 1 of them done" in capsys.readouterr().out
    assert "(1)" in (workdir / "tiny.md").read_text() and not (workdir / "a/seed3").exists()
    with pytest.raises(UserError, match=r"sweep\.run=False: none of the 1 runs in .* is finished; run some first"):
        run(monkeypatch, file, workdir, "--config.sweep.only=a", "--config.sweep.seeds=3", "--config.sweep.run=False")
    with pytest.raises(UserError, match=r"train\.batch_size was 8, is 16"):
        run(monkeypatch, file, workdir, TAME, "--config.train.batch_size=16")
    with another_job(held(workdir)), pytest.raises(UserError, match=f"{workdir}: process {os.getpid()} on "):
        run(monkeypatch, file, workdir, TAME)


def changed(folder, **values):
    """Replaces values of the parts of a run's `run.json`."""
    about = json.loads((folder / "run.json").read_text())
    for part, (name, value) in values.items():
        about[part][name] = value
    (folder / "run.json").write_text(json.dumps(about))


@pytest.mark.parametrize("field", ["data.train", "eval.data", "model.init_from"])
def test_runs_that_read_other_contents_make_no_table(field, finished, file, tmp_path, monkeypatch):
    workdir = shutil.copytree(finished[0], tmp_path / "copy")
    for seed in (1, 2):
        changed(workdir / f"b/seed{seed}", sha256=(field, "other"))
    before = (workdir / "tiny.md").read_text()
    with pytest.raises(UserError, match=rf"b \(seed 1\) and a \(seed 1\) read different contents of config\.{field}="):
        run(monkeypatch, file, workdir, TAME, "--config.sweep.run=False")
    assert (workdir / "tiny.md").read_text() == before


def test_training_data_that_are_drawn_with_the_seed_differ_from_seed_to_seed(file, finished):
    config = parse(["--config", str(file), "--workdir=w"])[0]
    runs = runner.all_runs(read_sweep(config, load_variants(str(file))), config.sweep, finished[0])
    named = {runner._named_by(each, "data.train") for each in runs}
    assert len(named) == 1
    runs = [each._replace(config=each.config.replaced("data.subsample", 8)) for each in runs]
    assert len({runner._named_by(each, "data.train") for each in runs}) == 2
    labelled = runs[0].config.replaced("objective.softmax_nli.weight", 1.0)
    runs[0] = runs[0]._replace(config=labelled)
    assert len({runner._named_by(each, "data.train") for each in runs}) == 3


def test_runs_of_several_machines_are_counted_below_the_table(finished, file, tmp_path, monkeypatch):
    workdir = shutil.copytree(finished[0], tmp_path / "copy")
    changed(workdir / "b/seed2", device=("kind", "H100"), versions=("jax", "0.11"))
    run(monkeypatch, file, workdir, TAME, "--config.sweep.run=False")
    last = (workdir / "tiny.md").read_text().splitlines()[-2:]
    assert re.fullmatch(r"- 3 runs: simcse_jax .* × cpu", last[0])
    assert re.fullmatch(r"- 1 run: simcse_jax .*, jax 0\.11, .* × H100", last[1])


def test_a_run_that_goes_wrong_does_not_stop_the_others(file, tmp_path, monkeypatch, capsys):
    def fail(config, workdir):
        raise UserError(f"seed {config.seed}: no luck")

    monkeypatch.setattr(runner, "train_and_evaluate", fail)
    with pytest.raises(UserError, match=r"4 of 4 runs failed; the first: a \(seed 1\): seed 1: no luck"):
        run(monkeypatch, file, tmp_path, TAME)
    assert capsys.readouterr().out.count("no luck") == 4
    assert "| a | –" in (tmp_path / "tiny.md").read_text()


def test_runs_that_failed_are_named_where_the_table_cannot_be_written_either(file, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise UserError("the disk is full")

    monkeypatch.setattr(runner, "train_and_evaluate", fail)
    monkeypatch.setattr("simcse_jax.training.sweeps.table.write", fail)
    expected = r"4 of 4 runs failed; the first: a \(seed 1\): the disk is full; and the disk is full"
    with pytest.raises(UserError, match=expected):
        run(monkeypatch, file, tmp_path, TAME)


def test_a_sigterm_ends_the_sweep_also_after_the_last_step_of_a_run(file, tmp_path, monkeypatch):
    calls = []

    def told(config, workdir):
        calls.append(workdir)
        with contextlib.closing(Preemption()) as preemption:
            preemption.reached(19)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(runner, "train_and_evaluate", told)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Preempted):
        run(monkeypatch, file, tmp_path, TAME)
    assert len(calls) == 1 and signal.getsignal(signal.SIGTERM) == before


REFUSED = {
    "--config.eval.data=": "variant 'a': config.eval.data is empty, and a sweep is a table of scores; give eval=FILE: ",
    "--config.sweep.metrics=after": "variant 'a': config.eval.against_start: must be set for the metric after",
    "--config.sweep.metrics=held_out_dev": "variant 'a': config.data.held_out: must be set for the metric held_out_dev",
    "--config.eval.data=no/such": "config.eval.data=no/such: no such file",
    "--config.data.train=no/such.txt": "variant 'a': config.data.train=no/such.txt: no such file",
    "--config.parallel.processes=0": "a sweep runs in one process",
    "--config.sweep.metrics=sts_avg": "has no test tasks for sts_avg",
    "--config.sweep.baseline=c": "'c' is not a variant",
    "--config.sweep.metrics=transfer_avg": "variant 'a': config.eval.transfer: must be set for the metric transfer_avg",
    "--config.eval.transfer=True": "config.eval.transfer: ",
    "--config.sweep.metrics=MR_dev": "variant 'a': config.eval.transfer: must be set for the metric MR_dev",
    "--config.sweep.metrics=STS12_wmean": "has no test tasks for STS12_wmean",
    "--config.sweep.metrics=sickr_dev": "config.sweep.metrics: ",
    "--config.sweep.metrics=anisotropy": "variant 'a': config.analysis.every=0: must divide eval.every=",
    "--config.sweep.metrics=retrieval_map@5": "variant 'a': config.eval.retrieval.data: must be set for the metric ret",
    "--config.sweep.metrics=retrieval_dev": "config.eval.development='stsb': must be retrieval, for retrieval_dev",
    "--config.eval.retrieval.data=no/such": "variant 'a': config.eval.retrieval.data=no/such: no such file",
    "--config.sweep.only=b": "leaves out 'a', the baseline",
}


@pytest.mark.parametrize("argument", REFUSED)
def test_a_mistake_that_stops_every_run_is_reported_before_the_first(argument, file, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=re.escape(REFUSED[argument])) as caught:
        run(monkeypatch, file, tmp_path / "sweep", argument)
    assert "\n" not in str(caught.value) and not (tmp_path / "sweep").exists()


def rows(tmp_path, *each, **base):
    """Rows that differ in these fields, as they are checked."""
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    found = []
    for number, fields in enumerate(each):
        config = default_config()
        train = {"data.train": str(tmp_path / "pairs.tsv"), "eval.data": "", "parallel.devices": 1}
        config.update_from_flattened_dict(train | {"eval.tasks": ()} | base | fields)
        found.append((Variant(f"row {number}", {}), validate(config)))
    return found


def test_sources_are_those_of_a_run(tmp_path):
    """Also patterns, folders with a task, and buckets, which are not asked."""
    (tmp_path / "STS").mkdir()
    pattern, task = f"{tmp_path}/*.tsv", f"sts:{tmp_path}/STS:STS12:test"

    def check(*names):
        given = {"eval.data": str(tmp_path / "pairs.tsv"), "eval.every": 0}
        each = rows(tmp_path, *({"data.train": name} for name in names), **given)
        return runner.all_runs(each, columns("stsb_dev"), tmp_path / "sweep")

    assert check(pattern, task, f"sts:{tmp_path}/STS", "gs://bucket/a.txt", "hf:x")
    for name in (f"{tmp_path}/*.csv", f"sts:{tmp_path}/none:STS12:test"):
        with pytest.raises(UserError, match="no such file"):
            check(name)


def test_scores_of_runs_without_a_checkpoint_are_not_dropped_for_a_new_column(tmp_path):
    """Those that were trained together; before, all were trained again."""
    (tmp_path / "a" / "seed1").mkdir(parents=True)
    (tmp_path / "a" / "seed1" / "result.json").write_text("{}")
    run = SimpleNamespace(workdir=tmp_path / "a" / "seed1", is_done=lambda: False)
    with pytest.raises(UserError, match=r"a/seed1: lacks scores that a column of config\.sweep\.metrics needs"):
        runner.run_all([run], True, tmp_path)
    assert (tmp_path / "a" / "seed1" / "result.json").exists()


def columns(*names):
    return Section.of({"sweep": sweep_defaults("", "", names, "row 0")}).sweep


HELD_OUT = {"data.held_out": 100, "eval.against_start": True}


@pytest.mark.parametrize(
    ("base", "each", "told"),
    [
        (HELD_OUT, [{"eval.every": 0}, {"eval.every": 10}], "'row 1' would be scored on half of the rows held out, "),
        (
            HELD_OUT,
            [{"eval.every": 10}, {"eval.every": 0}],
            "'row 0' would be scored on half of .* and variant 'row 1'",
        ),
        (
            {"eval.data": "pairs.tsv", "eval.against_start": True},
            [{"eval.every": 10}, {"eval.every": 0}],
            r"'row 0' would be scored on half of pairs\.tsv, .*; set config\.eval\.every and eval\.against_start alike",
        ),
    ],
)
def test_rows_that_would_be_scored_on_other_pairs_are_refused_before_the_first_run(
    base, each, told, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=told) as caught:
        runner.all_runs(rows(tmp_path, *each, **base), columns("after"), tmp_path / "sweep")
    assert "\n" not in str(caught.value)
    for same in (0, 10):
        runner.all_runs(rows(tmp_path, *[{"eval.every": same}] * 2, **base), columns("after"), tmp_path / "sweep")


@pytest.mark.parametrize(
    ("fields", "metric", "told"),
    [
        ({"eval.every": 0}, "held_out_dev", r"config\.eval\.every=0: must be above 0 for the metric held_out_dev"),
        (
            {},
            "sts_avg",
            r"data\.held_out=100: sts_avg is not measured on rows held out; set config\.sweep\.metrics=after$",
        ),
        ({"eval.against_start": False}, "STS12", "; set config.sweep.metrics=held_out_dev$"),
        (
            {"objective.cosent.weight": 1.0, "objective.info_nce.weight": 0.0},
            "retrieval_ndcg@10",
            r"pairs with scores, which objective\.cosent needs, are judged by Spearman's .*; set config\..*=after$",
        ),
    ],
)
def test_columns_that_rows_held_out_do_not_fill_are_refused(fields, metric, told, tmp_path):
    ((_, config),) = rows(tmp_path, fields, **HELD_OUT)
    with pytest.raises(UserError, match=told):
        runner.check_measured(config, metric, "config")
    ((_, config),) = rows(tmp_path, {}, **HELD_OUT)
    for good in ("held_out_dev", "after", "retrieval_ndcg@10"):
        runner.check_measured(config, good, "config")


def test_a_row_that_was_chosen_on_what_is_the_test_set_is_refused(tmp_path):
    ((variant, config),) = rows(tmp_path, {"eval.every": 0}, **HELD_OUT)
    runner.all_runs([(variant, config)], columns("after"), tmp_path / "sweep")
    with pytest.raises(UserError, match=r"'row 0': config\.eval\.every=0: must be above 0 for the metric held_out_dev"):
        chosen = variant._replace(chosen_on=("held_out_dev",))
        runner.all_runs([(chosen, config)], columns("after"), tmp_path / "sweep")


def test_other_contents_of_rows_held_out_are_named_by_their_field(tmp_path):
    runs = runner.all_runs(rows(tmp_path, {}, {}, **HELD_OUT), columns("after"), tmp_path / "sweep")[:2]
    for number, each in enumerate(runs):
        each.workdir.mkdir(parents=True)
        about = {
            "config": each.config.to_dict(),
            "sha256": {"eval.retrieval.data": f"{number}"},
            "model": {"max_length": 32},
        }
        (each.workdir / "run.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"read different contents of config\.data\.held_out=100, so a table"):
        runner.check_same_data(runs)


def test_more_that_is_refused(file, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"workdir=.*file: is a file"):
        run(monkeypatch, file, tmp_path / "file")
    for metric in ("training_minutes", "after"):
        with pytest.raises(UserError, match=f"no {metric} of their own"):
            run(monkeypatch, file, tmp_path, f"--config.sweep.metrics={metric}", "--config.sweep.vectorize=True")
    with pytest.raises(UserError, match=r"is a sweep; run it with simcse-jax sweep"):
        validate(parse(["--config", str(file), "--workdir=w"])[0])


@pytest.mark.slow
def test_runs_together_equal_each_alone_also_when_stopped_and_with_one_that_fails(
    finished, file, tmp_path, monkeypatch, capsys
):
    workdir, _ = finished
    written = []

    def stop(workdir, result):
        written.append(workdir)
        if len(written) == 2:
            raise KeyboardInterrupt
        (workdir.path / "result.json").write_text(json.dumps(result))

    def ctrl_c(self, number):
        if number == 7:
            os.kill(os.getpid(), signal.SIGINT)
        log(self, number)

    together, log = "--config.sweep.vectorize=True", Training.log
    with monkeypatch.context() as patch:
        patch.setattr(Training, "log", ctrl_c)
        with pytest.raises(KeyboardInterrupt, match="Ctrl-C: saved at step 7; resume with:"):
            run(patch, file, tmp_path, together)
    with monkeypatch.context() as patch:
        patch.setattr("simcse_jax.runs.workdir.Workdir.write_result", stop)
        with pytest.raises(KeyboardInterrupt):
            run(patch, file, tmp_path, together)
    assert len(list(tmp_path.glob("*/*/result.json"))) == 1
    (checkpoints,) = tmp_path.glob("together-*/checkpoints")
    assert {path.name for path in checkpoints.iterdir()} == {"10", "20"}
    again = shutil.copytree(tmp_path, tmp_path.parent / "again")
    shutil.rmtree(again / "a")  # to be run again: what the others have together with it is not gone on with
    capsys.readouterr()
    with monkeypatch.context() as patch, pytest.raises(UserError, match="2 of 6 runs failed"):
        run(patch, file, again, together)
    assert "resuming" not in capsys.readouterr().out
    assert list(read(again, "a", 1)[0]) == list(range(1, 21))
    for leftover in (checkpoints / "20").rglob("*"):
        if leftover.is_file():
            leftover.unlink()
    with pytest.raises(UserError, match=r"2 of 6 runs failed; the first: wild \(seed1\): step \d+: "):
        run(monkeypatch, file, tmp_path, together)
    assert "resuming at step 10 of 20" in capsys.readouterr().out
    for variant in ("a", "b"):
        for seed in (1, 2):
            losses, scores, result = read(tmp_path, variant, seed)
            expected, expected_scores, expected_result = read(workdir, variant, seed)
            assert list(losses) == list(expected) == list(range(1, 21))
            np.testing.assert_allclose(list(losses.values()), list(expected.values()), rtol=1e-4)
            assert scores == pytest.approx(expected_scores, abs=0.2)
            spearman = [json.loads(text)["dev"]["spearman"] for text in (result, expected_result)]
            assert spearman[0] == pytest.approx(spearman[1], abs=0.2)
            about = [
                json.loads((base / variant / f"seed{seed}" / "run.json").read_text()) for base in (tmp_path, workdir)
            ]
            assert about[0]["examples"] == about[1]["examples"] > 0
    assert not list(tmp_path.glob("together-*")) and not list(tmp_path.glob("wild/*/result.json"))
    with pytest.raises(UserError, match="has its scores but no checkpoint"):
        load_model(str(tmp_path / "a" / "seed1"))


@pytest.mark.slow
def test_runs_together_end_by_patience_where_each_alone_ends(file, tmp_path, monkeypatch):
    fields = ("train.patience=2", "eval.every=2", "train.optimizer=rmsprop", "train.epsilon=1e-4", "train.warmup=0.1")
    for name in ("alone", "together"):
        given = [f"--config.{field}" for field in (*fields, f"sweep.vectorize={name == 'together'}")]
        run(monkeypatch, file, tmp_path / name, TAME, *given)
    for variant in ("a", "b"):
        for seed in (1, 2):
            (losses, scores, result), expected = (
                read(tmp_path / name, variant, seed) for name in ("together", "alone")
            )
            np.testing.assert_allclose(list(losses.values()), list(expected[0].values()), rtol=1e-4)
            assert scores == pytest.approx(expected[1], abs=0.2)
            end = json.loads(result)["ended_at_step"]
            assert end == json.loads(expected[2])["ended_at_step"] == max(losses) == max(scores)


@pytest.mark.slow
def test_runs_with_lora_together_equal_each_alone_and_one_can_continue_alone(file, tmp_path, monkeypatch):
    traced_for = []
    record = lambda platform: traced_for.append(platform) or tracing_for(platform)  # noqa: E731
    monkeypatch.setattr("simcse_jax.training.programs.tracing_for", record)
    fields = ("model.lora.rank=2", "model.lora.dropout=0.1", "train.learning_rate=0.03", "train.max_steps=4")
    for name in ("alone", "together"):
        given = [f"--config.{field}" for field in (*fields, f"sweep.vectorize={name == 'together'}")]
        run(monkeypatch, file, tmp_path / name, TAME, *given)
    for variant in ("a", "b"):
        for seed in (1, 2):
            (losses, scores, _), expected = (read(tmp_path / name, variant, seed) for name in ("together", "alone"))
            np.testing.assert_allclose(list(losses.values()), list(expected[0].values()), rtol=1e-4)
            assert scores == pytest.approx(expected[1], abs=0.2)
    assert set(traced_for) == {"cpu"}
    folder = tmp_path / "together" / "a" / "seed1"
    assert not (folder / "model" / "frozen.safetensors").exists()
    (folder / "result.json").unlink()
    run(monkeypatch, file, tmp_path / "together", TAME, *(f"--config.{field}" for field in fields))
    assert load_model(str(folder)).params.keys() == load_model(str(tmp_path / "alone" / "a" / "seed1")).params.keys()


def test_a_run_that_was_begun_alone_resumes_alone(file, tmp_path):
    config = parse(["--config", str(file), "--workdir=w"])[0]
    runs = runner.all_runs(read_sweep(config, load_variants(str(file))), config.sweep, tmp_path)
    assert [len(group) for group in runner.make_groups(runs, runs, tmp_path)] == [6]
    (runs[1].workdir / "checkpoints").mkdir(parents=True)
    assert [[run.name for run in group] for group in runner.make_groups(runs, runs[:3], tmp_path)] == [
        ["b (seed 1)"],
        ["a (seed 1)", "wild (seed 1)"],
    ]


def test_rows_that_train_nothing_and_post_processing(file, tmp_path, monkeypatch, capsys):
    path = tmp_path / "untrained.py"
    content = file.read_text().partition("def get_variants")[0]
    path.write_text(
        f"""{content}
def get_variants():
    nothing = {{"train.epochs": 0, "train.max_steps": 0, "data.train": "no/such.txt"}}
    whitening = {{
        "eval.postprocess": "whitening", "eval.postprocess_data": "target", "eval.postprocess_dimensions": 4
    }}
    return (
        Variant("a", nothing, {{"stsb_dev": 50.0}}), Variant("white", nothing | whitening), Variant("both", whitening)
    )
"""
    )
    together = ("--config.sweep.vectorize=True", "--config.sweep.seeds=1", "--config.train.epochs=1")
    run(monkeypatch, path, tmp_path / "sweep", *together, "--config.train.max_steps=2")
    dev = {}
    for name in ("a", "white", "both"):
        _, scores, result = read(tmp_path / "sweep", name, 1)
        dev[name] = json.loads(result)["dev"]["spearman"]
        assert list(scores) == ([0] if name != "both" else [0, 2])
        assert f"{name},dev.tsv,1,{dev[name]:.8g}"[:-2] in (tmp_path / "sweep" / "untrained.csv").read_text()
    assert len({round(score, 2) for score in dev.values()}) == 3
    capsys.readouterr()
    run(monkeypatch, path, tmp_path / "sweep", *together, "--config.train.max_steps=2")
    assert "3 runs, 3 of them done" in capsys.readouterr().out


MANY = ("STS12", "STS12_wmean_pearson", "STS15", "STSBenchmark", "sts_avg", "stsb_dev", "sickr_dev", "alignment")


def test_a_table_of_every_kind_of_column(tiny_bert, corpus, tmp_path, monkeypatch):
    """Tasks that are there and one that is missing, averages, extra scores, and a row that is quoted."""
    senteval = write_similarity(tmp_path / "senteval", corpus["dev"])
    rows = 'Variant("a", {"train.epochs": 0, "train.max_steps": 0}, {"STS12": 39.7, "sts_avg": 56.7}),'
    rows += 'Variant("GloVe", {}, {"STS12": 55.14, "sts_avg": 61.32}, quoted=True),'
    path = tmp_path / "many.py"
    path.write_text(sweep_text(tiny_bert, corpus | {"dev": senteval}, rows, steps=2, seeds=(1,)))
    columns = f"--config.sweep.metrics={','.join(MANY)}"
    run(monkeypatch, path, tmp_path / "sweep", "--config.sweep.metrics=STS12")
    scored = json.loads((tmp_path / "sweep/a/seed1/result.json").read_text())
    assert "alignment" not in scored  # it costs nothing
    scored["STS12"]["spearman"] = 12.5
    (tmp_path / "sweep/a/seed1/result.json").write_text(json.dumps(scored))
    run(monkeypatch, path, tmp_path / "sweep", columns)  # the finished run is scored on what it lacks, no more
    result = json.loads((tmp_path / "sweep/a/seed1/result.json").read_text())
    found = {row["metric"]: row for row in csv_rows(tmp_path / "sweep/many.csv") if row["variant"] == "a"}
    assert result["STS12"]["spearman"] == 12.5
    tasks = [result[task]["spearman"] for task in ("STS12", "STSBenchmark", "SICKRelatedness")]
    values = {"STS12": tasks[0], "STS12_wmean_pearson": result["STS12"]["wmean"]["pearson"], "STSBenchmark": tasks[1]}
    values |= {"STS avg., 3 of 7": np.mean(tasks), "sickr_dev": result["sickr_dev"], "alignment": result["alignment"]}
    assert {name: float(found[name]["mean"]) for name in values} == pytest.approx(values)
    assert (
        found["STS15"]["mean"] == "" and found["STS avg., 3 of 7"]["paper"] == "" and found["STS12"]["paper"] == "39.7"
    )
    shutil.rmtree(tmp_path / "sweep/a/seed1/checkpoints")  # now the model of these scores is lost
    (tmp_path / "sweep/a/seed1/result.json").write_text(json.dumps(scored))
    run(monkeypatch, path, tmp_path / "sweep", columns)
    assert json.loads((tmp_path / "sweep/a/seed1/result.json").read_text())["STS12"]["spearman"] != 12.5
    text = (tmp_path / "sweep/many.md").read_text()
    assert "| GloVe (quoted) | 55.14 | – |" in text and "without STS13, STS14, STS15, STS16." in text
    assert "56.7" not in text and "61.32" not in text and not (tmp_path / "sweep/GloVe").exists()
    run(monkeypatch, path, tmp_path / "quoted", columns, "--config.sweep.only=GloVe")
    assert "nothing is run" in (tmp_path / "quoted/many.md").read_text()


def test_a_table_of_retrieval(tiny_bert, corpus, tmp_path, monkeypatch):
    """Rows that train nothing, and have no other scores."""
    nothing = '"train.epochs": 0, "train.max_steps": 0'
    rows = f'Variant("a", {{{nothing}}}), Variant("avg", {{{nothing}, "model.pooler": "avg", "model.mlp": "none"}})'
    path = tmp_path / "found.py"
    path.write_text(sweep_text(tiny_bert, corpus | {"dev": ""}, rows, steps=2, seeds=(1,)))
    fields = [f"--config.eval.retrieval.data={write_beir(tmp_path / 'tiny')}", "--config.eval.development=retrieval"]
    columns = ("retrieval_dev", "retrieval_ndcg@10", "retrieval_recall@100")
    run(monkeypatch, path, tmp_path / "sweep", *fields, f"--config.sweep.metrics={','.join(columns)}")
    for name in ("a", "avg"):
        folder = tmp_path / "sweep" / name / "seed1"
        result = json.loads((folder / "result.json").read_text())["retrieval_average"]
        development = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])["eval/retrieval_ndcg@10"]
        rows = [row for row in csv_rows(tmp_path / "sweep/found.csv") if row["variant"] == name]
        found = {row["metric"]: float(row["mean"]) for row in rows}
        expected = {columns[0]: development, columns[1]: result["ndcg@10"], columns[2]: result["recall@100"]}
        assert found == pytest.approx(expected)
    table = (tmp_path / "sweep/found.md").read_text()
    assert "eval.retrieval.split=test, eval.retrieval.documents=0, eval.retrieval.storage=float32" in table
    for metric in ("stsb_dev", "uniformity"):
        with pytest.raises(UserError, match=rf"variant 'a': config\.eval\.data: must be set for the metric {metric}"):
            run(monkeypatch, path, tmp_path / "none", *fields, f"--config.sweep.metrics={metric}")
    with pytest.raises(UserError, match=r"eval\.retrieval\.measures=ndcg@10,.*: has no map@5, for retrieval_map@5"):
        run(monkeypatch, path, tmp_path / "other", *fields, "--config.sweep.metrics=retrieval_map@5")


def csv_rows(path):
    return list(csv.DictReader(path.open()))


TABLE_5 = ["BERT-base (first-last avg.)", "BERT-base-flow", "BERT-base-whitening", "InferSent-GloVe", "SBERT-base"]
TABLE_5 += ["unsup. SimCSE-BERT-base", "unsup. SimCSE-BERT-base (published)", "SBERT-base (published)"]
TABLE_5 += ["sup. SimCSE-BERT-base (published)", "IS-BERT-base"]
TABLE_E1 = ["average of RoBERTa-base", "unsup. SimCSE-RoBERTa-base with MLM", "unsup. SimCSE-RoBERTa-base (published)"]
TABLE_E1 += ["SBERT-base (published)", "sup. SimCSE-BERT-base with MLM"]
PP_TABLE_4 = ["DiffCSE", "DiffCSE + SimCSE++", "DiffCSE (published)"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "table, rows", [("simcse_table5", TABLE_5), ("simcse_tableE1", TABLE_E1), ("simcse_pp_table4", PP_TABLE_4)]
)
def test_a_row_of_each_kind_runs(table, rows, corpus, tmp_path, monkeypatch):
    """With tiny models of the names that the rows have, in the current folder."""
    roberta = add_mask_token(write_model(tmp_path / "roberta-base", "roberta"))
    for config in parse_rows(table):
        if not (folder := tmp_path / config.model.init_from).exists():
            if "roberta" in folder.name:
                shutil.copytree(roberta, folder)
            else:
                add_mask_token(write_model(folder, "bert", max_position_embeddings=136))  # IS-BERT reads 131
    add_language_model(shutil.copytree(tmp_path / "bert-base-uncased", tmp_path / "distilbert-base-uncased"))
    senteval = write_all(write_similarity(tmp_path / "senteval", corpus["dev"]))
    words = [line.replace(",", "") for line in corpus["txt"].read_text().splitlines()]
    some = [f"{first} {second}" for first, second in itertools.product(words, words[:20])][:600]  # a batch has 512
    triplets = ["sent0,sent1,hard_neg", *(f"{a},{b},{a} {b}" for a, b in itertools.pairwise(some))]
    labelled = ["sent0,sent1,label", *(f"{a},{b},{n % 3}" for n, (a, b) in enumerate(itertools.pairwise(some)))]
    files = {"wiki1m_for_simcse.txt": some, "nli_sentences.txt": some}
    for name, lines in (files | {"nli_for_simcse.csv": triplets, "nli_pairs.csv": labelled}).items():
        write(tmp_path / "data" / name, lines)
    monkeypatch.chdir(tmp_path)
    few = [f"--config.{field}" for field in ("train.max_steps=2", "sweep.seeds=1", "parallel.devices=1")]
    few += [f"--config.eval.data={senteval}", f"--config.sweep.only={','.join(rows)}"]
    few += [f"--config.sweep.baseline={rows[0]}"]
    run(monkeypatch, f"ablations/{table}", tmp_path / "sweep", *few)
    ours = (tmp_path / "sweep" / f"{table}.md").read_text().partition("**The paper's**")[0]
    assert all(
        re.search(rf"^\| {re.escape(row)} \| 1 \| -?\d", ours, re.MULTILINE) for row in rows if row != "InferSent-GloVe"
    )
    if table == "simcse_table5":
        assert len({line.split("|", 2)[2] for line in ours.splitlines() if "| 1 |" in line}) > 5  # they differ


def test_the_line_below_the_table_names_the_protocol_of_transfer_tasks(file, tmp_path):
    config = parse(["--config", str(file), "--workdir=w"])[0]
    runs = runner.all_runs(read_sweep(config, load_variants(str(file))), config.sweep, tmp_path)
    assert "transfer" not in runner.what_was_run(runs) and runner.what_was_run([]) == ""
    runs = [each._replace(config=each.config.replaced("eval.transfer", True)) for each in runs]
    assert runner.what_was_run(runs).endswith("eval.transfer_protocol=sklearn")


def parse_rows(table):
    path = f"ablations/{table}"
    return [config for _, config in read_sweep(parse(["--config", path, "--workdir=w"])[0], load_variants(path))]
