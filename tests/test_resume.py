"""Killed anywhere and started again, a run ends with the same parameters, bit for bit."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT, run, train_args

from simcse_jax.checkpoint import Checkpoints
from simcse_jax.models import huggingface, pretrained
from simcse_jax.models.parameters import Params

STEPS = 30


def final_params(workdir, model) -> Params:
    checkpoints = Checkpoints(workdir, read_only=True)
    assert checkpoints.latest == STEPS
    _, shapes = huggingface.build(pretrained.load(str(model)).config, with_head=True)
    return checkpoints.restore_params(STEPS, shapes)


def arguments(tiny_bert, corpus, workdir) -> list[str]:
    more = [f"--config.train.max_steps={STEPS}", "--config.train.log_every=1", "--config.eval.every=4"]
    return train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir, *more)


@pytest.fixture(scope="module")
def straight(tiny_bert, corpus, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("straight") / "run"
    done = run("main", *arguments(tiny_bert, corpus, workdir))
    assert done.returncode == 0, done.stderr
    return workdir


def kill_when(args, workdir, lines: int) -> bool:
    """Starts the run and kills it once `metrics.jsonl` has that many lines; False if it ended before."""
    environment = {**os.environ, "XLA_FLAGS": ""}
    command = [sys.executable, "-m", "simcse_jax.main", *args]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        metrics = workdir / "metrics.jsonl"
        while child.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
                child.send_signal(signal.SIGKILL)
                return True
            time.sleep(0.002)
    return False


@pytest.mark.slow
def test_killed_runs_end_with_the_same_parameters(straight, tiny_bert, corpus, tmp_path):
    workdir = tmp_path / "run"
    args = arguments(tiny_bert, corpus, workdir)
    # Before the first checkpoint, right at one (an evaluation's line comes just before its save), and between.
    killed = [kill_when(args, workdir, lines) for lines in (1, 3, 6, 7, 16, 22)]
    assert sum(killed) >= 5
    done = run("main", *args)
    assert done.returncode == 0, done.stderr
    assert "resuming at step" in done.stdout

    expected, found = final_params(straight, tiny_bert), final_params(workdir, tiny_bert)
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value), err_msg=name)
    assert (workdir / "result.json").read_text() == (straight / "result.json").read_text()

    def without_speed(folder):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [{name: value for name, value in line.items() if name != "sentences_per_second"} for line in lines]

    assert without_speed(workdir) == without_speed(straight)  # no step twice, none missing, every value the same


@pytest.mark.slow
def test_another_seed_ends_elsewhere(straight, tiny_bert, corpus, tmp_path):
    done = run("main", *arguments(tiny_bert, corpus, tmp_path / "run"), "--config.seed=7")
    assert done.returncode == 0, done.stderr
    other, first = final_params(tmp_path / "run", tiny_bert), final_params(straight, tiny_bert)
    assert not np.array_equal(np.asarray(other["head.kernel"]), np.asarray(first["head.kernel"]))


def test_metrics_go_back_to_the_resumed_step(tmp_path):
    from simcse_jax.workdir import Metrics

    metrics = Metrics(tmp_path, None)
    for step in range(5):
        metrics.write(step, {"loss": 1.0})
    metrics.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 5, "lo')  # a kill in the middle of a line
    metrics = Metrics(tmp_path, 3)
    metrics.write(4, {"loss": 2.0})
    metrics.close()
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3, 4]
    Metrics(tmp_path, None).close()  # nothing to resume from: from the start again
    assert (tmp_path / "metrics.jsonl").read_text() == ""
