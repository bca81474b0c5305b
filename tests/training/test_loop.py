import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from support import SPEED, call, lines, refused, train_args

from simcse_jax.encoding.embedder import NotFinite
from simcse_jax.errors import Preempted, UserError
from simcse_jax.host.progress import Progress
from simcse_jax.training.loop import Training
from simcse_jax.training.patience import SINCE_BEST, Patience
from simcse_jax.training.schedule import Due, Schedule
from simcse_jax.training.step import METRICS


class Loss:
    """The loss of a step: the step's number. It is ready at once, or when it is waited for."""

    fetched: ClassVar[list[int]] = []
    ready: ClassVar[bool] = True

    def __init__(self, step):
        self.step = step

    def is_ready(self):
        return self.ready

    def block_until_ready(self):
        return self

    def __array__(self, dtype=None, copy=None):
        self.fetched.append(self.step)
        return np.array(self.step, np.float32)


class Recorded(Training):
    def __init__(self):
        self.said = []
        checkpoints = SimpleNamespace(wait=lambda: self.said.append("wait"))
        compiled = SimpleNamespace(compile=lambda *_: 0.0)
        super().__init__(SimpleNamespace(schedule=SCHEDULE), None, Patience(0), None, compiled, {}, checkpoints)

    def read(self, step):
        self.said.append(f"read {step}")
        return step

    def compile(self, step, state, batch):
        self.said.append(f"compile {step}")

    def update(self, step, state, batch):
        assert step == batch == state.step
        self.said.append(f"update {step}")
        self.pending = [(step + 1, {"loss": Loss(step + 1)})]
        return SimpleNamespace(step=step + 1)

    def log(self, number):
        self.said.append(f"log {number}")

    def look(self, number, state, due, preempted=False):
        assert state.step == number
        what = [name for name in ("measure", "score", "save") if getattr(due, name)] + ["preempted"] * preempted
        self.said.append(f"look {number}: {' '.join(what)}")


def stop_at(*steps):
    return SimpleNamespace(reached=steps.__contains__, ended=lambda step: Preempted(f"saved at {step}"), finish=list)


NEVER = stop_at()
SCHEDULE = Schedule(total=3, log_every=2, score_every=2, measure_every=0, keep_every=0)


def test_the_next_batch_is_read_while_a_step_runs_and_what_is_due_comes_after_it(monkeypatch):
    monkeypatch.setattr(Loss, "fetched", [])
    training = Recorded()
    assert training.train(SimpleNamespace(step=0), NEVER).step == 3
    assert training.said == [
        *("read 0", "compile 0", "look 0: score", "update 0", "read 1", "log 1"),
        *("update 1", "read 2", "log 2", "look 2: score save", "update 2", "log 3", "look 3: score save", "wait"),
    ]
    assert Loss.fetched == []


def test_a_resumed_run_does_not_look_at_its_start_and_one_that_has_ended_does_no_further_step():
    training, finished = Recorded(), Recorded()
    training.train(SimpleNamespace(step=2), NEVER)
    assert training.said == ["read 2", "compile 2", "update 2", "log 3", "look 3: score save", "wait"]
    finished.train(SimpleNamespace(step=3), NEVER)
    assert finished.said == ["wait"]

    class Ending(Recorded):
        def look(self, number, *rest):
            super().look(number, *rest)
            self.ended = self.ended or number == 2

    training = Ending()
    for start, last in ((0, "look 2: score save"), (2, "wait")):
        assert training.train(SimpleNamespace(step=start), NEVER).step == 2
        assert training.said[-2:] == [last, "wait"]


@pytest.mark.parametrize("step", [2, 3])
def test_the_end_is_announced_after_everything_is_saved(step):
    training, said = Recorded(), []
    preemption = SimpleNamespace(reached=lambda number: False, finish=lambda: said.append(training.said[-1]))
    training.train(SimpleNamespace(step=step), preemption)
    assert said == ["wait"]
    training.checkpoints.wait = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        training.train(SimpleNamespace(step=step), preemption)
    assert said == ["wait"]


def test_a_preempted_run_saves_first_but_the_last_step_is_the_end():
    training = Recorded()
    with pytest.raises(Preempted, match="saved at 1"):
        training.train(SimpleNamespace(step=0), stop_at(1, 2, 3))
    assert training.said[-1] == "look 1: preempted"
    Recorded().train(SimpleNamespace(step=2), stop_at(1, 2, 3))


@pytest.mark.parametrize("ready", [True, False])
def test_the_bar_counts_each_finished_step_and_leaves_out_evaluations(ready, monkeypatch):
    counted, skipped = [], []
    monkeypatch.setattr(Loss, "ready", ready)
    monkeypatch.setattr(Progress, "advance", lambda self, count, note: counted.append(note()))
    monkeypatch.setattr(Progress, "skip", lambda self, seconds: skipped.append(seconds))
    training = Recorded()
    look = Recorded.look

    def slow(self, number, *rest):
        assert len(counted) == number  # all steps before an evaluation are counted
        time.sleep(0.05 if number else 0)
        look(self, number, *rest)

    monkeypatch.setattr(Recorded, "look", slow)
    training.train(SimpleNamespace(step=0), NEVER)
    assert counted == ["loss 1.0000", "loss 2.0000", "loss 3.0000"]
    assert len(skipped) == 2 and min(skipped) >= 0.05


def test_a_loss_that_is_not_finite_stops_the_run(tiny_bert, nan_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.eval.every=1")
    done = call("train", *args, "--config.train.learning_rate=1e30", "--config.train.log_every=1")
    refused(done, "step 1", "not finite", "no checkpoint was saved yet", "train.learning_rate")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Stopped before its end" in page and "step 1: the" in page and "no checkpoint was saved yet" in page
    assert [line["step"] for line in lines(tmp_path / "run")] == [0, 1]
    done = call("train", *train_args(nan_bert, corpus["txt"], corpus["dev"], tmp_path / "nan"))
    refused(done, "step 0: the model's embeddings are not finite", "init_from must be another model")


def test_ctrl_c_saves_after_the_step_and_names_it_and_the_command(tiny_bert, corpus, tmp_path, monkeypatch):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.train.log_every=1")
    log = Training.log

    def ctrl_c(self, number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
        log(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "log", ctrl_c)
        patch.setattr(sys, "orig_argv", ["python", "-m", "simcse_jax.main", "--config", "x"])
        done = call("train", *args)
    assert done.returncode == 130, done.stderr
    assert done.stderr.endswith("Ctrl-C: saved at step 3; resume with:\n  python -m simcse_jax.main --config x\n")
    assert "Ctrl-C: saving after this step" in done.stderr and "Traceback" not in done.stderr
    done = call("train", *args)
    assert done.returncode == 0 and "resuming at step 3 of " in done.stdout, done.stderr


class Lines:
    def __init__(self):
        self.lines = []

    def write(self, step, values):
        self.lines.append({"step": step, **values})

    def flush(self):
        pass


def trained(names=("",), scores=None, patience=0, checkpoints=None, best=(), **parts):
    """A run in the loop, whose model is its parameters; `scores` are called with them."""

    class Model:
        def __init__(self, params):
            self.params = params

        def with_progress(self, sentences, shown):
            if not np.isfinite(self.params["x"]).all():
                raise NotFinite("the model's embeddings are not finite")
            return np.ones((len(sentences), 2))

    embed, schedule = SimpleNamespace(with_params=Model), SimpleNamespace(total=99)
    setup = SimpleNamespace(
        **{"embed": embed, "judge": embed, "schedule": schedule, "towers": range(1), "pairs": None},
        gather_for_scoring=lambda params: params,
        model=lambda params, tower: params,
        read=lambda batches, step: parts.get("batch", step),
        measuring=[lambda model: {"analysis": {"x": 1.0}}],
        scoring=[lambda model: model([""]) is not None and {"eval/x": scores(model.embedder.params)}] if scores else [],
    )
    checkpoints = checkpoints or SimpleNamespace(latest=4, close=list, save=lambda *_: None)
    batches, updates = parts.get("batches"), parts.get("updates")
    return Training(setup, None, Patience(patience), batches, updates, {}, checkpoints, metrics=Lines())


def done(number):
    return [(number, dict.fromkeys(METRICS, np.float32(1)))]


def test_the_first_step_that_went_wrong_is_named_with_the_last_good_checkpoint():
    training = trained()
    training.pending = [*done(5), (6, done(6)[0][1] | {"gradient_norm": np.float32(np.inf)}), *done(7)]
    with pytest.raises(UserError, match=r"step 6: .*norm inf; the last good checkpoint is that of step 4"):
        training.fetch()


def names_of(lines):
    return [(line["step"], sorted(line.keys() - {"step"})) for line in lines]


def test_the_step_at_which_patience_ends_a_run_is_logged_and_measured():
    saved, scores = [], iter([3.0, 2.0, 2.5])
    checkpoints = SimpleNamespace(save=lambda state, score, tower: saved.append(score))
    training = trained(scores=lambda params: next(scores), patience=2, checkpoints=checkpoints)
    state = SimpleNamespace(params={"x": np.ones(1)}, _replace=lambda params: state)
    for number, due in ((4, Due(True, True, True, True)), (8, Due(False, False, True, True))) * 2:
        if training.ended:
            break
        training.pending = done(number)
        training.speed.add(16, 100)
        if due.log:
            training.log(number)
        training.look(number, state, due)
    logged, scored = sorted([*METRICS, *SPEED[:4]]), ["eval/x", SINCE_BEST]
    first = [(4, logged), (4, ["analysis"]), (4, scored)]
    written = names_of(training.metrics.lines)
    assert written == [*first, (8, scored), *first] and saved == [3.0, 2.0, 2.5] and training.ended
    training.patience, training.ended, training.pending = Patience(1, best=9.0), False, done(9)
    training.speed.add(16, 100)
    scores = iter([1.0])
    training.look(9, state, Due(False, False, True, True))
    assert names_of(training.metrics.lines)[len(written) :] == [(9, scored), (9, logged), (9, ["analysis"])]


def test_writing_the_metrics_is_none_of_the_steps_time(monkeypatch):
    training = trained()
    write = Lines.write
    monkeypatch.setattr(Lines, "write", lambda *args: (write(*args), time.sleep(0.2)))
    for number in (1, 2):
        training.pending = done(number)
        training.speed.add(80, 800)
        training.log(number)
    lines = training.metrics.lines
    assert all(line["seconds"] < 0.1 and line["sentences_per_second"] > 80 / 0.1 for line in lines)
    assert training.speed.steps == 0


class Batches:
    """Of four sentences and twelve tokens; a batch is there after some looks at it."""

    def __init__(self, looks=0):
        self.looks = looks

    def is_reading(self, step):
        self.looks -= 1
        return self.looks >= 0

    def tokens(self, step):
        return 12


def test_each_step_s_sentences_and_tokens_are_counted_and_the_share_of_the_peak():
    updates = SimpleNamespace(compile=lambda *_: 0.0, at_peak=lambda step: 0.001)
    batch = {"input_ids": np.zeros((4, 2, 3), np.int32)}
    training = trained(batches=Batches(), updates=updates, batch=batch)
    training.traced_update = lambda step, state, batch, settings: (state, done(1)[0][1])
    for step in range(3):
        training.pending = []  # idle
        training.update(step, None, training.read(step))
    training.log(3)
    (line,) = training.metrics.lines
    assert set(line) == {"step", *METRICS, *SPEED} and 0 < line["waiting_for_data"] <= 1
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
    training = trained(batches=Batches(looks=5))
    training.pending, training.speed = [(1, {"loss": Running()})], SimpleNamespace(wait=waited.append)
    expected = min(busy, 5)
    assert training.read(1) == 1
    assert bool(waited) == waits and len(slept) == expected
