"""Killed anywhere and started again, a run ends with the same parameters, bit for bit."""

import os
import random
import shlex
import signal
import subprocess
import time

import numpy as np
import pytest
from support import lines, run, start_command, train_args, without_speed

from simcse_jax.huggingface.load import load
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.checkpoints import Checkpoints

STEPS = 200
KILLS = 6  # `make test-kills` kills training and four other commands more often


def final_params(workdir, model) -> Params:
    checkpoints = Checkpoints(workdir, read_only=True)
    assert checkpoints.latest == STEPS
    _, shapes = build(load(str(model)).config, with_head=True)
    return checkpoints.restore_params(STEPS, shapes)


def arguments(tiny_bert, corpus, workdir) -> list[str]:
    more = [f"--config.train.max_steps={STEPS}", "--config.train.log_every=1", "--config.eval.every=10"]
    return train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir, *more)


@pytest.fixture(scope="module")
def straight(tiny_bert, corpus, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("straight") / "run"
    done = run("train", *arguments(tiny_bert, corpus, workdir))
    assert done.returncode == 0, done.stderr
    return workdir


def start(args) -> subprocess.Popen:
    return start_command("train", *args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def progress(workdir) -> set[str]:
    """The files that change during a run: its checkpoints, complete ones and those that are being written."""
    return set(os.listdir(workdir / "checkpoints")) if (workdir / "checkpoints").exists() else set()


def kill(args, workdir, wait: float, in_training: bool) -> bool:
    """Kills the run `wait` seconds after its start, or after the first sign of a new checkpoint.

    Returns whether there was still a run to kill.
    """
    before = progress(workdir)
    with start(args) as child:
        while in_training and child.poll() is None and progress(workdir) <= before:
            time.sleep(0.001)
        time.sleep(wait)
        ended = child.poll() is not None
        child.kill()
    return not ended


@pytest.mark.slow
def test_killed_runs_end_with_the_same_parameters(straight, tiny_bert, corpus, tmp_path):
    workdir = tmp_path / "run"
    args = arguments(tiny_bert, corpus, workdir)
    generator = random.Random(0)
    # Two while it starts, then anywhere between two checkpoints and in the middle of saving one.
    landed = [kill(args, workdir, generator.uniform(0, 2), in_training=False) for _ in range(2)]
    reached = []
    while sum(landed) < KILLS and len(landed) < 3 * KILLS:
        landed.append(kill(args, workdir, generator.uniform(0, 0.4), in_training=True))
        reached.append(max((int(name) for name in progress(workdir) if name.isdigit()), default=0))
    assert sum(landed) >= KILLS and len(set(reached)) >= 3, (landed, reached)  # at different places
    done = run("train", *args)
    assert done.returncode == 0, done.stderr
    assert "resuming at step" in done.stdout

    assert_equal(workdir, straight, tiny_bert)


def assert_equal(workdir, straight, tiny_bert):
    """Bit for bit: the parameters, the scores, every logged value but the speed."""
    expected, found = final_params(straight, tiny_bert), final_params(workdir, tiny_bert)
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value), err_msg=name)
    assert (workdir / "result.json").read_text() == (straight / "result.json").read_text()

    found, expected = (without_speed(lines(folder)) for folder in (workdir, straight))
    assert found == expected  # no step twice, none missing, every value the same


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (signal.SIGTERM, 75, "SIGTERM: saved at step {}; the same command resumes there\n"),
        (signal.SIGINT, 130, "Ctrl-C: saved at step {}; resume with:\n  {}\n"),
    ],
)
def test_a_signal_saves_after_the_step_and_the_same_command_resumes(
    sent, code, said, straight, tiny_bert, corpus, tmp_path
):
    args = arguments(tiny_bert, corpus, tmp_path / "run")
    with start(args) as child:
        while not progress(tmp_path / "run"):
            assert child.poll() is None
            time.sleep(0.001)
        time.sleep(0.3)
        child.send_signal(sent)
        errors = child.stderr.read().decode()
        assert child.wait(60) == code, errors
    saved = Checkpoints(tmp_path / "run", read_only=True).latest
    assert said.format(saved, shlex.join(child.args)) in errors and "Traceback" not in errors
    assert ("saving after this step" in errors) == (sent == signal.SIGINT)
    assert 0 < saved < STEPS
    done = run("train", *args)
    assert done.returncode == 0 and f"resuming at step {saved} of {STEPS}" in done.stdout, done.stderr
    assert_equal(tmp_path / "run", straight, tiny_bert)


@pytest.mark.slow
def test_two_signals_of_one_ctrl_c_save_once(tiny_bert, corpus, tmp_path):
    with start(arguments(tiny_bert, corpus, tmp_path / "run")) as child:
        while not progress(tmp_path / "run"):
            assert child.poll() is None
            time.sleep(0.001)
        for _ in range(2):
            child.send_signal(signal.SIGINT)
            time.sleep(0.01)  # Python would take signals that come together for one
        errors = child.stderr.read().decode()
        assert child.wait(60) == 130 and "Traceback" not in errors, errors
    assert "saved at step" in errors


@pytest.mark.slow
def test_another_seed_ends_elsewhere(straight, tiny_bert, corpus, tmp_path):
    done = run("train", *arguments(tiny_bert, corpus, tmp_path / "run"), "--config.seed=7")
    assert done.returncode == 0, done.stderr
    other, first = final_params(tmp_path / "run", tiny_bert), final_params(straight, tiny_bert)
    assert not np.array_equal(np.asarray(other["head.kernel"]), np.asarray(first["head.kernel"]))
