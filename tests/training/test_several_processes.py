"""Real runs as several processes on loopback, compared with one process: the layout is a matter of speed alone."""

import itertools
import json
import os
import shutil
import signal
import string
import subprocess
import sys
import time

import pytest
from support import (
    ROOT,
    assert_arrays,
    call,
    finish,
    lines,
    run,
    start_process,
    start_processes,
    succeeded,
    train_args,
    xla_flags,
)
from support.beir import write_beir
from support.jobs import another_job

from simcse_jax.host.locks import held
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.loading import load_workdir

STEPS = 8


@pytest.fixture(scope="module")
def arguments(tiny_bert, corpus):
    def make(workdir, *more):
        fields = {"train.max_steps": STEPS, "train.learning_rate": 5e-5, "train.log_every": 1, "eval.every": 4}
        fields |= {"checkpoint.keep_every": 2, "analysis.every": 4, "model.num_layers": 1, "model.mlp": "always"}
        given = [f"--config.{name}={value}" for name, value in fields.items()]
        return train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir, *given, *more)

    return make


def start_slurm_tasks(args, count):
    job = str(4000 + int.from_bytes(os.urandom(2)) % 4000)  # JAX makes the port of it
    slurm = {"SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(count)}
    slurm |= {"SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_NUM_NODES": "1", "XLA_FLAGS": xla_flags(2)}
    command = [sys.executable, "-m", "simcse_jax.main", *args, "--config.parallel.devices=0"]
    command.append("--config.parallel.processes=0")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    numbers = [{"SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)} for task in range(count)]
    return [start_process(command, cwd=ROOT, env={**os.environ, **slurm, **own}, **pipes) for own in numbers]


def finished(processes, code=0):
    ended = finish(processes)
    assert {found for found, _, _ in ended} == {code}, ended
    assert all("Traceback" not in errors for _, _, errors in ended), ended
    return [out for _, out, _ in ended], [errors for _, _, errors in ended]


@pytest.fixture(scope="module")
def layouts(arguments, tmp_path_factory):
    """The same run as 1 process × 1 device and 2 × 2, which find each other as Slurm says."""
    folder = tmp_path_factory.mktemp("layouts")
    succeeded(run("train", *arguments(folder / "1x1")))
    said, _ = finished(start_slurm_tasks(arguments(folder / "2x2"), 2))
    return folder, said


def assert_same(found, expected):
    """Losses within 1e-4 relative, scores, the last layer's measures and parameters within 1e-5."""
    for one, other in zip(lines(found), lines(expected), strict=True):
        assert one["step"] == other["step"]
        if "loss" in other:
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-4), one["step"]
        elif "analysis" in other:
            assert one["analysis"] == pytest.approx(other["analysis"], abs=1e-5), one["step"]
        else:
            assert one["eval/dev"] == pytest.approx(other["eval/dev"], abs=0.01)
    ours, theirs = (load_workdir(folder, step=STEPS).params for folder in (found, expected))
    assert_arrays(ours, theirs, atol=1e-5)


def test_two_processes_train_the_same_model_as_one_and_the_first_alone_speaks(layouts):
    folder, (first, second) = layouts
    assert_same(folder / "2x2", folder / "1x1")
    assert json.loads((folder / "2x2" / "run.json").read_text())["device"]["count"] == 4
    assert "40 sentences" in first and "best checkpoint" in first
    # Gloo's threads write their lines in pieces, which can meet. A line of ours has other letters or these words.
    gloo = "[Gloo] Rank 1 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"
    assert set(second) <= set(gloo + string.digits + "\n"), second
    assert not any(word in second for word in ("loss", "sentences", "step")), second


@pytest.mark.slow
@pytest.mark.parametrize(("written", "resumed"), [("2x2", "1x1"), ("1x1", "2x2"), ("2x2", "2x2")])
def test_a_checkpoint_of_one_layout_resumes_in_another(written, resumed, layouts, arguments, tmp_path):
    folder, _ = layouts
    workdir = shutil.copytree(folder / written, tmp_path / "run")
    for step in (6, 8):
        if written == resumed:  # only what the second process wrote is damaged, and both go back
            for path in (workdir / "checkpoints" / str(step) / "params" / "ocdbt.process_1" / "d").iterdir():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        else:
            shutil.rmtree(workdir / "checkpoints" / str(step))
    if resumed == "1x1":
        said = [run("train", *arguments(workdir)).stdout]
    else:
        said, _ = finished(start_processes(arguments(workdir)))
    assert "resuming at step 4" in said[0]
    assert_same(workdir, folder / "1x1")


@pytest.mark.slow
def test_a_mistake_of_one_process_ends_all_of_them_in_one_line(arguments, layouts, tmp_path):
    """Reading a workdir takes no part of the others' talk: one may fail while another still reads."""
    init = f"--config.model.init_from={layouts[0] / '1x1'}"
    for argument, named in (
        ("--config.eval.data=/no/such", "/no/such"),
        ("--config.checkpoint.keep_every=3", "the config: differs between process 1 and process 0"),
    ):
        _, errors = finished(start_processes(arguments(tmp_path / "run", init), more={1: [argument]}), code=2)
        for error in errors:
            found = [line for line in error.splitlines() if line.startswith("error: ")]
            assert len(found) == 1 and named in found[0], errors
        assert not (tmp_path / "run").exists()
    with another_job(held(tmp_path / "run")):
        _, errors = finished(start_processes(arguments(tmp_path / "run")), code=2)
    assert all("run: another job" in error.splitlines()[-1] for error in errors), errors
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.slow
def test_patience_ends_several_processes_at_the_step_of_one(arguments, tmp_path):
    more = [f"--config.{field}" for field in ("train.patience=1", "eval.every=2", "analysis.every=0")]
    more.append("--config.train.max_steps=20")
    assert call("train", *arguments(tmp_path / "one", *more)).returncode == 0
    end = json.loads((tmp_path / "one" / "result.json").read_text())["ended_at_step"]
    assert end < 20
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for path in (tmp_path / "two" / "checkpoints").iterdir():
        if path.name.isdigit() and int(path.name) > end - 2:
            shutil.rmtree(path)
    said, _ = finished(start_processes(arguments(tmp_path / "two", *more)))
    assert f"resuming at step {end - 2} of" in said[0] and f"ended at step {end}: " in said[0]
    assert "ended at" not in said[1]
    assert json.loads((tmp_path / "two" / "result.json").read_text())["ended_at_step"] == end
    assert [line["step"] for line in lines(tmp_path / "two")] == [line["step"] for line in lines(tmp_path / "one")]


@pytest.mark.slow
def test_evaluations_of_many_batches_and_retrieval_have_the_scores_of_one_process(arguments, layouts, corpus, tmp_path):
    """Programs with exchanges between devices, dispatched side by side, would wait for each other on CPUs."""
    rows = (corpus["txt"].read_text() + corpus["dev"].read_text()).replace("\t", " ").splitlines()
    pairs = [f"{a} {i}\t{b} {i}\t{i % 6}" for i in range(40) for a, b in itertools.pairwise(rows)]
    (tmp_path / "dev.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *pairs]) + "\n")
    fields = {"eval.data": tmp_path / "dev.tsv", "train.max_steps": 2, "eval.every": 1, "eval.development": "retrieval"}
    fields |= {"model.init_from": layouts[0] / "1x1", "eval.retrieval.data": write_beir(tmp_path / "tiny")}
    more = [f"--config.{name}={value}" for name, value in fields.items()]
    assert call("train", *arguments(tmp_path / "one", *more)).returncode == 0
    finished(start_processes(arguments(tmp_path / "two", *more)))
    one, two = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two"))
    assert two["retrieval_average"] == pytest.approx(one["retrieval_average"]) and "ndcg@10" in one["retrieval_average"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 1])
def test_a_signal_to_one_process_saves_and_ends_all_with_one_code(count, arguments, tmp_path):
    """A Ctrl-C to one of two; a SIGTERM to a single task of Slurm, while it still compiles."""
    more = [f"--config.{field}" for field in ("train.max_steps=5000", "checkpoint.keep_every=0", "eval.every=5000")]
    args, deadline = arguments(tmp_path / "run", *more, "--config.analysis.every=0"), time.monotonic() + 200
    processes = start_processes(args) if count == 2 else start_slurm_tasks(args, 1)
    written = tmp_path / "run" / ("metrics.jsonl" if count == 2 else "run.json")
    while not written.exists() or (count == 2 and len(lines(tmp_path / "run")) < 3):
        assert time.monotonic() < deadline and processes[0].poll() is None
        time.sleep(0.05)
    processes[-1].send_signal(signal.SIGINT if count == 2 else signal.SIGTERM)
    _, errors = finished(processes, code=75)
    saved = Checkpoints(tmp_path / "run", read_only=True).latest
    assert saved < 5000 and all(f"saved at step {saved}" in error for error in errors)
    if count == 2:
        assert 0 < saved == lines(tmp_path / "run")[-1]["step"]


@pytest.mark.slow
def test_a_signal_to_one_process_within_a_fold_ends_all(arguments, tmp_path):
    data, steps = tmp_path / "pairs.csv", "--config.train.max_steps=5000"
    data.write_text("sent0,sent1\n" + "".join(f"a cat {row},the dog {row}\n" for row in range(100)))
    fields = {"data.train": data, "data.folds": 5, "eval.data": "", "eval.every": 0, "analysis.every": 0}
    more = [f"--config.{name}={value}" for name, value in fields.items()]
    processes, deadline = start_processes(arguments(tmp_path / "run", *more, steps)), time.monotonic() + 200
    while not (tmp_path / "run" / "run.json").exists():
        assert time.monotonic() < deadline and processes[0].poll() is None
        time.sleep(0.05)
    processes[-1].send_signal(signal.SIGTERM)
    _, errors = finished(processes, code=75)
    assert all("SIGTERM: no new step was done; the same command starts again" in error for error in errors), errors
