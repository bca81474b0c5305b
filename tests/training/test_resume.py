"""Killed anywhere and started again, a run ends with the same parameters, bit for bit.

The quick test of it is in `test_programs`, and `make test-kills` kills training and four other commands more often.
"""

import os
import random
import shlex
import signal
import subprocess
import time

import pytest
from support import assert_arrays, lines, run, start_command, succeeded, train_args, without_speed

from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.loading import load_workdir

pytestmark = pytest.mark.slow
STEPS = 100
KILLS = 3


@pytest.fixture(scope="module")
def args_of(tiny_bert, corpus):
    fields = (f"train.max_steps={STEPS}", "train.log_every=1", "eval.every=10", "model.mlp=always")
    more = [f"--config.{field}" for field in fields]
    return lambda workdir: train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir, *more)


@pytest.fixture(scope="module")
def straight(args_of, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("straight") / "run"
    succeeded(run("train", *args_of(workdir)))
    return workdir


def progress(workdir) -> set[str]:
    """The files that change during a run: its checkpoints, complete ones and those that are being written."""
    return set(os.listdir(workdir / "checkpoints")) if (workdir / "checkpoints").exists() else set()


def wait_for_more(child, workdir) -> None:
    """Waits for a new checkpoint, or the end."""
    before = progress(workdir)
    while child.poll() is None and progress(workdir) <= before:
        time.sleep(0.001)


def start(args) -> subprocess.Popen:
    return start_command("train", *args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill(args, workdir, wait: float, in_training: bool) -> bool:
    """Kills the run `wait` seconds after its start or the first sign of a checkpoint; whether there was one to kill."""
    with start(args) as child:
        if in_training:
            wait_for_more(child, workdir)
        time.sleep(wait)
        ended = child.poll() is not None
        child.kill()
    return not ended


def assert_ends_as(straight, workdir, args):
    """Bit for bit, after another start: the parameters, the scores, every logged value but the speed."""
    done = run("train", *args)
    assert done.returncode == 0 and "resuming at step" in done.stdout, done.stderr
    found, expected = (load_workdir(folder, step=STEPS).params for folder in (workdir, straight))
    assert_arrays(found, expected)
    assert (workdir / "result.json").read_text() == (straight / "result.json").read_text()
    assert without_speed(lines(workdir)) == without_speed(lines(straight))  # no step twice, none missing


def test_killed_runs_end_with_the_same_parameters(straight, args_of, tmp_path):
    workdir, args, generator = tmp_path / "run", args_of(tmp_path / "run"), random.Random(0)
    # One while it starts, then anywhere between two checkpoints and in the middle of saving one.
    landed, reached = [kill(args, workdir, generator.uniform(0, 2), in_training=False)], set()
    while sum(landed) < KILLS and len(landed) < 3 * KILLS:
        landed.append(kill(args, workdir, generator.uniform(0, 0.4), in_training=True))
        reached.add(max((int(name) for name in progress(workdir) if name.isdigit()), default=0))
    assert sum(landed) >= KILLS and len(reached) >= 2, (landed, reached)  # at different places
    assert "Not finished: " in (workdir / "report.html").read_text()
    assert_ends_as(straight, workdir, args)


def test_signals_save_after_the_step_and_the_same_command_resumes(straight, args_of, tmp_path):
    args, saved = args_of(tmp_path / "run"), 0
    for sent, times, code, said in (
        (signal.SIGTERM, 1, 75, "SIGTERM: saved at step {}; the same command resumes there\n"),
        (signal.SIGINT, 2, 130, "Ctrl-C: saved at step {}; resume with:\n  {}\n"),  # two signals of one Ctrl-C
    ):
        with start(args) as child:
            wait_for_more(child, tmp_path / "run")
            assert child.poll() is None
            for _ in range(times):
                child.send_signal(sent)
                time.sleep(0.01)  # Python would take signals that come together for one
            errors = child.stderr.read().decode()
            assert child.wait(60) == code, errors
        before, saved = saved, Checkpoints(tmp_path / "run", read_only=True).latest
        assert said.format(saved, shlex.join(child.args)) in errors and "Traceback" not in errors
        assert ("saving after this step" in errors) == (sent == signal.SIGINT)
        assert before < saved < STEPS
        assert "Stopped before its end" in (tmp_path / "run" / "report.html").read_text()
    assert_ends_as(straight, tmp_path / "run", args)
