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


def test_a_loss_that_is_not_finite_stops_the_run(tiny_bert, nan_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.eval.every=1")
    done = call("main", *args, "--config.train.learning_rate=1e30", "--config.train.log_every=1")
    refused(done, "step 1", "not finite", "no checkpoint was saved yet", "train.learning_rate")
    assert [line["step"] for line in lines(tmp_path / "run")] == [0, 1]
    done = call("main", *train_args(nan_bert, corpus["txt"], "", tmp_path / "nan"))
    refused(done, "step 1: the loss is nan")
    done = call("main", *train_args(nan_bert, corpus["txt"], corpus["dev"], tmp_path / "nan2"))
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
        done = call("main", *args)
    assert done.returncode == 130, done.stderr
    assert done.stderr.endswith("Ctrl-C: saved at step 3; resume with:\n  python -m simcse_jax.main --config x\n")
    assert "Ctrl-C: saving after this step" in done.stderr and "Traceback" not in done.stderr
    done = call("main", *args)
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
        run.pending, run.steps = [(number, dict.fromkeys(METRICS, np.float32(1)))], 4
        if due.log:
            run.log(number)
        run.look(number, SimpleNamespace(params={}), due)
    logged, scored = sorted([*METRICS, "seconds", "sentences_per_second"]), ["eval/x", SINCE_BEST]
    first = [(4, logged), (4, ["analysis"]), (4, scored)]
    assert written == [*first, (8, scored), *first] and saved == [3.0, 2.0, 2.5] and run.ended
    run.patience, run.pending, run.steps = Patience(1, best=9.0), [(9, dict.fromkeys(METRICS, np.float32(1)))], 1
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
        run.pending, run.steps = [(number, dict.fromkeys(METRICS, np.float32(1)))], 5
        run.log(number)
    assert all(line["seconds"] < 0.1 and line["sentences_per_second"] > 80 / 0.1 for line in Slow.written)
    assert run.steps == 0
