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

import numpy as np
import pytest
from support import ROOT, finish, run, start_process, start_processes, train_args, xla_flags
from support.beir import write_beir
from support.jobs import another_job

from simcse_jax.host.locks import held
from simcse_jax.huggingface.load import load
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.checkpoints import Checkpoints

pytestmark = pytest.mark.slow
STEPS = 20


@pytest.fixture(scope="module")
def arguments(tiny_bert, corpus):
    def make(workdir, *more):
        fields = {"train.max_steps": STEPS, "train.learning_rate": 5e-5, "train.log_every": 1, "eval.every": 10}
        fields |= {"checkpoint.keep_every": 5, "analysis.every": 5}
        given = [f"--config.{name}={value}" for name, value in fields.items()]
        return train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir, *given, *more)

    return make


def start_slurm_tasks(args, count):
    job = str(4000 + int.from_bytes(os.urandom(2)) % 4000)  # JAX makes the port of it
    slurm = {"SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(count)}
    slurm |= {"SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_NUM_NODES": "1"}
    slurm |= {"XLA_FLAGS": xla_flags(2)}
    command = [sys.executable, "-m", "simcse_jax.main", *args, "--config.parallel.devices=0"]
    return [
        start_process(
            [*command, "--config.parallel.processes=0"],
            cwd=ROOT,
            env={**os.environ, **slurm, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for task in range(count)
    ]


@pytest.fixture(scope="module")
def layouts(arguments, tmp_path_factory):
    """The same run as 1 process × 1 device, 1 × 4 and 2 × 2, which find each other as Slurm says."""
    folder = tmp_path_factory.mktemp("layouts")
    done = run("train", *arguments(folder / "1x1"))
    assert done.returncode == 0, done.stderr
    four = {"XLA_FLAGS": xla_flags(4)}
    done = run("train", *arguments(folder / "1x4", "--config.parallel.devices=4"), env=four)
    assert done.returncode == 0, done.stderr
    ended = finish(start_slurm_tasks(arguments(folder / "2x2"), 2))
    assert [code for code, _, _ in ended] == [0, 0], ended
    (folder / "2x2.out").write_text(json.dumps([output for _, output, _ in ended]))
    return folder


def params(workdir, model, step=STEPS):
    checkpoints = Checkpoints(workdir, read_only=True)
    _, shapes = build(load(str(model)).config, with_head=True)
    return checkpoints.restore_params(step, shapes)


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def assert_same(found, expected, model):
    """Losses within 1e-4 relative, scores, the last layer's measures and parameters within 1e-5."""
    assert len(lines(found)) == len(lines(expected))
    for one, other in zip(lines(found), lines(expected), strict=True):
        assert one["step"] == other["step"]
        if "loss" in other:
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-4), one["step"]
        elif "analysis" in other:
            assert one["analysis"] == pytest.approx(other["analysis"], abs=1e-5), one["step"]
        else:
            assert one["eval/dev"] == pytest.approx(other["eval/dev"], abs=0.01)
    ours = params(found, model)
    for name, value in params(expected, model).items():
        np.testing.assert_allclose(np.asarray(ours[name]), np.asarray(value), atol=1e-5, err_msg=name)


def test_every_layout_trains_the_same_model(layouts, tiny_bert):
    assert_same(layouts / "1x4", layouts / "1x1", tiny_bert)
    assert_same(layouts / "2x2", layouts / "1x1", tiny_bert)
    device = json.loads((layouts / "2x2" / "run.json").read_text())["device"]
    assert device["count"] == 4


def test_the_first_process_alone_speaks(layouts):
    first, second = json.loads((layouts / "2x2.out").read_text())
    assert "40 sentences" in first and "best checkpoint" in first
    # Gloo's threads write their lines in pieces, which can meet. A line of ours has other letters or these words.
    gloo = "[Gloo] Rank 1 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"
    assert set(second) <= set(gloo + string.digits + "\n"), second
    assert not any(word in second for word in ("loss", "sentences", "step")), second


@pytest.mark.parametrize(("written", "resumed"), [("2x2", "1x1"), ("1x1", "2x2"), ("2x2", "2x2")])
def test_a_checkpoint_of_one_layout_resumes_in_another(written, resumed, layouts, arguments, tiny_bert, tmp_path):
    workdir = shutil.copytree(layouts / written, tmp_path / "run")
    for step in (15, 20):
        if written == resumed:  # only what the second process wrote is damaged, and both go back
            for path in (workdir / "checkpoints" / str(step) / "params" / "ocdbt.process_1" / "d").iterdir():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        else:
            shutil.rmtree(workdir / "checkpoints" / str(step))
    if resumed == "1x1":
        done = run("train", *arguments(workdir))
        assert done.returncode == 0 and "resuming at step 10" in done.stdout, done.stderr
    else:
        ended = finish(start_processes(arguments(workdir)))
        assert [code for code, _, _ in ended] == [0, 0] and "resuming at step 10" in ended[0][1], ended
    assert_same(workdir, layouts / "1x1", tiny_bert)


def test_a_mistake_of_one_process_ends_all_of_them_in_one_line(arguments, tmp_path, corpus):
    shutil.copyfile(corpus["csv"], tmp_path / "other.csv")
    cases = {
        "--config.data.train=/no/such.txt": "data.train=/no/such.txt: no such file",
        "--config.checkpoint.keep_every=3": "the config: differs between process 1 and process 0",
        f"--workdir={tmp_path}/elsewhere": "--workdir: differs between process 1 and process 0",
    }
    for argument, message in cases.items():
        ended = finish(start_processes(arguments(tmp_path / "run"), more={1: [argument]}))
        assert [code for code, _, _ in ended] == [2, 2], (argument, ended)
        for _, _, errors in ended:
            found = [line for line in errors.splitlines() if line.startswith("error: ")]
            assert len(found) == 1 and message in found[0] and "Traceback" not in errors, errors
        assert not (tmp_path / "run").exists()


def test_patience_ends_several_processes_at_the_step_of_one(arguments, tmp_path):
    more = [f"--config.{field}" for field in ("train.patience=1", "eval.every=2", "analysis.every=0")]
    done = run("train", *arguments(tmp_path / "one", *more))
    assert done.returncode == 0, done.stderr
    expected = json.loads((tmp_path / "one" / "result.json").read_text())
    end = expected["ended_at_step"]
    assert end < STEPS
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for path in (tmp_path / "two" / "checkpoints").iterdir():
        if path.name.isdigit() and int(path.name) > end - 2:
            shutil.rmtree(path)
    for resumed in (end - 2, end):
        ended = finish(start_processes(arguments(tmp_path / "two", *more)))
        assert [code for code, _, _ in ended] == [0, 0], ended
        assert f"resuming at step {resumed} of" in ended[0][1] and f"ended at step {end}: " in ended[0][1]
        assert "ended at" not in ended[1][1]
        assert json.loads((tmp_path / "two" / "result.json").read_text())["ended_at_step"] == end
        assert [line["step"] for line in lines(tmp_path / "two")] == [line["step"] for line in lines(tmp_path / "one")]


def test_retrieval_scores_several_processes_as_one(arguments, tmp_path):
    more = [f"--config.eval.retrieval.data={write_beir(tmp_path / 'tiny')}", "--config.train.max_steps=0"]
    more += ["--config.train.epochs=0", "--config.eval.development=retrieval", "--config.model.mlp=none"]
    done = run("train", *arguments(tmp_path / "one", *more))
    assert done.returncode == 0, done.stderr
    ended = finish(start_processes(arguments(tmp_path / "two", *more)))
    assert [code for code, _, _ in ended] == [0, 0], ended
    one, two = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two"))
    assert two["retrieval_average"] == pytest.approx(one["retrieval_average"]) and "ndcg@10" in one["retrieval_average"]


def test_a_model_from_a_workdir_and_a_mistake_after_it(arguments, layouts, tmp_path):
    """Reading a workdir takes no part of the others' talk: one may fail while another still reads."""
    init = f"--config.model.init_from={layouts / '1x1'}"
    ended = finish(start_processes(arguments(tmp_path / "run", init), more={1: ["--config.eval.data=/no/such"]}))
    assert [code for code, _, _ in ended] == [2, 2], ended
    assert all("/no/such" in errors and "Traceback" not in errors for _, _, errors in ended)
    ended = finish(start_processes(arguments(tmp_path / "run", init, "--config.train.max_steps=2")))
    assert [code for code, _, _ in ended] == [0, 0], ended


def test_an_evaluation_of_many_batches_ends(arguments, corpus, tmp_path):
    """Programs with exchanges between devices, dispatched side by side, would wait for each other on CPUs."""
    rows = (corpus["txt"].read_text() + corpus["dev"].read_text()).replace("\t", " ").splitlines()
    pairs = [f"{a} {i}\t{b} {i}\t{i % 6}" for i in range(40) for a, b in itertools.pairwise(rows)]
    (tmp_path / "dev.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *pairs]) + "\n")
    args = arguments(tmp_path / "run", f"--config.eval.data={tmp_path}/dev.tsv", "--config.train.max_steps=2")
    ended = finish(start_processes([*args, "--config.eval.every=1"]))
    assert [code for code, _, _ in ended] == [0, 0], ended


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_one_process_saves_and_ends_all_with_one_code(sent, arguments, tmp_path):
    args = arguments(tmp_path / "run", "--config.train.max_steps=5000", "--config.checkpoint.keep_every=0")
    args.append("--config.eval.every=5000")
    processes = start_processes(args)
    deadline = time.monotonic() + 200
    while not (tmp_path / "run" / "metrics.jsonl").exists() or len(lines(tmp_path / "run")) < 3:
        assert time.monotonic() < deadline and processes[0].poll() is None
        time.sleep(0.1)
    processes[1].send_signal(sent)
    ended = finish(processes)
    assert [code for code, _, _ in ended] == [75, 75], ended
    saved = Checkpoints(tmp_path / "run", read_only=True).latest
    assert saved == lines(tmp_path / "run")[-1]["step"] and 0 < saved < 5000
    assert all(f"saved at step {saved}" in errors for _, _, errors in ended)


def test_a_single_slurm_task_hears_sigterm_too(arguments, tmp_path):
    args = arguments(tmp_path / "run", "--config.train.max_steps=5000", "--config.eval.every=5000")
    processes = start_slurm_tasks([*args, "--config.checkpoint.keep_every=0"], 1)
    while not (tmp_path / "run" / "run.json").exists():
        assert processes[0].poll() is None
        time.sleep(0.05)
    processes[0].send_signal(signal.SIGTERM)  # while it still compiles
    ended = finish(processes)
    assert ended[0][0] == 75, ended
    assert Checkpoints(tmp_path / "run", read_only=True).latest < 5000


def test_a_workdir_of_another_job_ends_all_processes(arguments, tmp_path):
    with another_job(held(tmp_path / "run")):
        ended = finish(start_processes(arguments(tmp_path / "run")))
    assert [code for code, _, _ in ended] == [2, 2], ended
    for _, _, printed in ended:
        assert f"run: process {os.getpid()} on " in printed.splitlines()[-1], printed
    assert not list((tmp_path / "run").iterdir())
