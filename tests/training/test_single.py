import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from support import call, lines, refused, train_args

from simcse_jax.errors import UserError
from simcse_jax.training.patience import SINCE_BEST, Patience
from simcse_jax.training.schedule import Due
from simcse_jax.training.single import SingleRun
from simcse_jax.training.step import METRICS

SPEED = ("seconds", "sentences_per_second", "tokens_per_second", "waiting_for_data")


def test_a_loss_that_is_not_finite_stops_the_run(tiny_bert, nan_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.eval.every=1")
    done = call("train", *args, "--config.train.learning_rate=1e30", "--config.train.log_every=1")
    refused(done, "step 1", "not finite", "no checkpoint was saved yet", "train.learning_rate")
    assert [line["step"] for line in lines(tmp_path / "run")] == [0, 1]
    done = call("train", *train_args(nan_bert, corpus["txt"], "", tmp_path / "nan"))
    refused(done, "step 1: the loss is nan")
    done = call("train", *train_args(nan_bert, corpus["txt"], corpus["dev"], tmp_path / "nan2"))
    refused(done, "step 0: the model's embeddings are not finite, that of", "init_from must be another model")


def test_ctrl_c_saves_after_the_step_and_names_it_and_the_command(tiny_bert, corpus, tmp_path, monkeypatch):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.train.log_every=1")
    log = SingleRun.log

    def ctrl_c(self, number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
        log(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(SingleRun, "log", ctrl_c)
        patch.setattr(sys, "orig_argv", ["python", "-m", "simcse_jax.main", "--config", "x"])
        done = call("train", *args)
    assert done.returncode == 130, done.stderr
    assert done.stderr.endswith("Ctrl-C: saved at step 3; resume with:\n  python -m simcse_jax.main --config x\n")
    assert "Ctrl-C: saving after this step" in done.stderr and "Traceback" not in done.stderr
    done = call("train", *args)
    assert done.returncode == 0 and "resuming at step 3 of " in done.stdout, done.stderr


def test_the_first_step_that_went_wrong_is_named_with_the_last_good_checkpoint():
    checkpoints = SimpleNamespace(latest=4, close=lambda: None)
    good = dict.fromkeys(METRICS, np.float32(1))
    steps = [(5, good), (6, good | {"gradient_norm": np.inf}), (7, good)]
    run = SingleRun(None, None, None, {}, checkpoints, None, pending=steps)
    with pytest.raises(UserError, match=r"step 6: .*norm inf; the last good checkpoint is that of step 4"):
        run.fetch()


def test_the_step_at_which_patience_ends_a_run_is_logged_and_measured():
    written, saved, scores = [], [], iter([3.0, 2.0, 2.5])
    embed = SimpleNamespace(with_params=lambda params: None)
    setup = SimpleNamespace(
        embed=embed,
        mesh=SimpleNamespace(size=1),
        schedule=SimpleNamespace(total=99),
        model=lambda params, tower: params,
        towers=range(1),
        inputs=SimpleNamespace(num_columns=2),
        measuring=[lambda embed: {"analysis": {"x": 1.0}}],
        scoring=[lambda embed: {"eval/x": next(scores)}],
    )
    metrics = SimpleNamespace(write=lambda number, line: written.append((number, sorted(line))), flush=list)
    checkpoints = SimpleNamespace(save=lambda state, score, tower: saved.append(score))
    run = SingleRun(setup, SimpleNamespace(batch_size=8), None, {}, checkpoints, metrics, patience=Patience(2))
    for number, due in ((4, Due(True, True, True, True)), (8, Due(False, False, True, True))) * 2:
        if run.ended:
            break
        run.pending = [(number, dict.fromkeys(METRICS, np.float32(1)))]
        run.speed.add(16, 100)
        if due.log:
            run.log(number)
        run.look(number, SimpleNamespace(params={}), due)
    logged, scored = sorted([*METRICS, *SPEED]), ["eval/x", SINCE_BEST]
    first = [(4, logged), (4, ["analysis"]), (4, scored)]
    assert written == [*first, (8, scored), *first] and saved == [3.0, 2.0, 2.5] and run.ended
    run.patience, run.pending = Patience(1, best=9.0), [(9, dict.fromkeys(METRICS, np.float32(1)))]
    run.speed.add(16, 100)
    scores = iter([1.0])
    run.look(9, SimpleNamespace(params={}), Due(False, False, True, True))
    assert written[len(first) * 2 + 1 :] == [(9, scored), (9, logged), (9, ["analysis"])]


def test_writing_the_metrics_is_none_of_the_steps_time():
    class Slow:
        written: ClassVar = []

        def write(self, number, line):
            self.written.append(line)
            time.sleep(0.2)

    setup = SimpleNamespace(inputs=SimpleNamespace(num_columns=2))
    run = SingleRun(setup, SimpleNamespace(batch_size=8), None, {}, None, Slow())
    for number in (1, 2):
        run.pending = [(number, dict.fromkeys(METRICS, np.float32(1)))]
        run.speed.add(80, 800)
        run.log(number)
    assert all(line["seconds"] < 0.1 and line["sentences_per_second"] > 80 / 0.1 for line in Slow.written)
    assert run.speed.steps == 0


class Batches:
    """Of four sentences and twelve tokens; a batch is there after some looks at it."""

    batch_size = 4

    def __init__(self, looks=0):
        self.looks = looks

    def is_reading(self, step):
        self.looks -= 1
        return self.looks >= 0

    def tokens(self, step):
        return 12


def test_each_step_s_sentences_and_tokens_are_counted_and_the_share_of_the_peak():
    batch = {"input_ids": np.zeros((4, 2, 3), np.int32)}
    setup = SimpleNamespace(read=lambda batches, step: batch)
    values = dict.fromkeys(METRICS, np.float32(1))
    updates = SimpleNamespace(compile=lambda *_: 0.0, at_peak=lambda step: 0.001)
    written = []
    metrics = SimpleNamespace(write=lambda number, line: written.append(line))
    run = SingleRun(setup, Batches(), updates, {}, None, metrics)
    run.traced_update = lambda step, state, batch, settings: (state, values)
    state = SimpleNamespace()
    for step in range(3):
        run.pending = []  # idle
        run.update(step, state, run.read(step))
    run.log(3)
    (line,) = written
    assert set(line) == {*METRICS, *SPEED, "share_of_peak"} and 0 < line["waiting_for_data"] <= 1
    counts = [line[name] * line["seconds"] for name in ("sentences_per_second", "tokens_per_second", "share_of_peak")]
    assert counts == pytest.approx([24, 36, 0.003])


@pytest.mark.parametrize(("busy", "waits"), [(1000, False), (3, True), (0, True)])
def test_only_while_no_step_is_left_do_the_devices_wait_for_data(busy, waits, monkeypatch):
    """`busy` is how often the devices are found at work; the batch is there after five looks."""

    class Running:
        def is_ready(self):
            nonlocal busy
            busy -= 1
            return busy < 0

    slept, waited = [], []
    monkeypatch.setattr(time, "sleep", slept.append)
    run = SingleRun(SimpleNamespace(read=lambda batches, step: step), Batches(looks=5), None, {}, None, None)
    run.pending, run.speed = [(1, {"loss": Running()})], SimpleNamespace(wait=waited.append)
    expected = min(busy, 5)
    assert run.read(1) == 1
    assert bool(waited) == waits and len(slept) == expected
