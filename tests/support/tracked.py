"""A run that is killed, stopped and resumed while it reports to a tracker."""

import signal
import time

from . import lines, start_command, train_args

STEPS = 60


def arguments(model, corpus, workdir, tracker):
    """Of a run with a log line for each step."""
    fields = {"train.max_steps": STEPS, "train.log_every": 1, "eval.every": 10, "train.report_to": tracker}
    more = [f"--config.{name}={value}" for name, value in fields.items()]
    return train_args(model, corpus["txt"], corpus["dev"], workdir, *more)


def stop(args, workdir, step, sent, env):
    """Starts the run and ends it by a signal after it has logged `step`; returns its exit code."""
    with start_command("train", *args, env=env) as child:
        while child.poll() is None and not _has(workdir, step):
            time.sleep(0.01)
        child.send_signal(sent)
    return child.returncode


def killed_stopped_and_resumed(args, workdir, env):
    """Kills the run, then stops it, then lets it end."""
    assert stop(args, workdir, 10, signal.SIGKILL, env) == -signal.SIGKILL
    assert stop(args, workdir, 30, signal.SIGTERM, env) == 75
    with start_command("train", *args, env=env) as child:
        child.wait()
    assert child.returncode == 0


def expected(workdir):
    """The numbers of `metrics.jsonl` by their names in trackers: (step, value) of each."""
    found = {}
    for line in lines(workdir):
        for name, value in line.items():
            if name != "step":
                found.setdefault(name if "/" in name else f"train/{name}", []).append((line["step"], value))
    return found


def _has(workdir, step):
    path = workdir / "metrics.jsonl"
    return path.is_file() and any(line["step"] >= step for line in lines(workdir))
