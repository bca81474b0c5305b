import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from simcse_jax.errors import Preempted, UserError
from simcse_jax.host.progress import Progress
from simcse_jax.training.loop import closing_all, describe, train
from simcse_jax.training.schedule import Schedule


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


class Trainee:
    """Records the calls of the loop."""

    ended = False

    def __init__(self):
        self.said = []
        self.loss = Loss(0)

    def read(self, step):
        self.said.append(f"read {step}")
        return step

    def compile(self, step, state, batch):
        self.said.append(f"compile {step}")

    def update(self, step, state, batch):
        assert step == batch == state.step
        self.said.append(f"update {step}")
        self.loss = Loss(step + 1)
        return SimpleNamespace(step=step + 1)

    def log(self, number):
        self.said.append(f"log {number}")

    def look(self, number, state, due, preempted):
        assert state.step == number
        what = [name for name in ("measure", "score", "save") if getattr(due, name)] + ["preempted"] * preempted
        self.said.append(f"look {number}: {' '.join(what)}")

    def wait(self):
        self.said.append("wait")


def fail():
    raise UserError("the disk is full")


def stop_at(*steps):
    """Where a signal is noticed."""
    return SimpleNamespace(reached=steps.__contains__, ended=lambda step: Preempted(f"saved at {step}"), finish=list)


NEVER = stop_at()
SCHEDULE = Schedule(total=3, log_every=2, score_every=2, measure_every=0, keep_every=0)


def test_the_next_batch_is_read_while_a_step_runs_and_what_is_due_comes_after_it():
    trainee = Trainee()
    assert train(trainee, SCHEDULE, SimpleNamespace(step=0), NEVER).step == 3
    assert trainee.said == [
        *("read 0", "compile 0", "look 0: score"),
        *("update 0", "read 1", "log 1"),
        *("update 1", "read 2", "log 2", "look 2: score save"),
        *("update 2", "log 3", "look 3: score save", "wait"),
    ]


def test_a_resumed_run_does_not_look_at_its_start_and_a_finished_one_does_no_step():
    trainee = Trainee()
    train(trainee, SCHEDULE, SimpleNamespace(step=2), NEVER)
    assert trainee.said == ["read 2", "compile 2", "update 2", "log 3", "look 3: score save", "wait"]
    finished = Trainee()
    train(finished, SCHEDULE, SimpleNamespace(step=3), NEVER)
    assert finished.said == ["wait"]


def test_a_trainee_that_has_ended_does_no_further_step():
    class Ending(Trainee):
        @property
        def ended(self):
            return "look 2: score save" in self.said

    trainee = Ending()
    assert train(trainee, SCHEDULE, SimpleNamespace(step=0), NEVER).step == 2
    assert trainee.said[-2:] == ["look 2: score save", "wait"]
    assert train(trainee, SCHEDULE, SimpleNamespace(step=2), NEVER).step == 2
    assert trainee.said[-2:] == ["wait", "wait"]


@pytest.mark.parametrize("step", [2, 3])
def test_the_end_is_announced_after_everything_is_saved(step):
    trainee, said = Trainee(), []
    preemption = SimpleNamespace(reached=lambda number: False, finish=lambda: said.append(trainee.said[-1]))
    train(trainee, SCHEDULE, SimpleNamespace(step=step), preemption)
    assert said == ["wait"]
    trainee.wait = fail
    with pytest.raises(UserError, match="disk"):
        train(trainee, SCHEDULE, SimpleNamespace(step=step), preemption)
    assert said == ["wait"]


def test_a_preempted_run_saves_first_but_the_last_step_is_the_end():
    trainee = Trainee()
    with pytest.raises(Preempted, match="saved at 1"):
        train(trainee, SCHEDULE, SimpleNamespace(step=0), stop_at(1, 2, 3))
    assert trainee.said[-1] == "look 1: preempted"
    train(Trainee(), SCHEDULE, SimpleNamespace(step=2), stop_at(1, 2, 3))


@pytest.mark.parametrize("ready", [True, False])
def test_the_bar_counts_each_finished_step_and_leaves_out_evaluations(ready, monkeypatch):
    counted, skipped = [], []
    monkeypatch.setattr(Loss, "ready", ready)
    monkeypatch.setattr(Progress, "advance", lambda self, count, note: counted.append(note()))
    monkeypatch.setattr(Progress, "skip", lambda self, seconds: skipped.append(seconds))
    trainee = Trainee()
    look = Trainee.look

    def slow(self, number, *rest):
        assert len(counted) == number  # all steps before an evaluation are counted
        time.sleep(0.05 if number else 0)
        look(self, number, *rest)

    monkeypatch.setattr(Trainee, "look", slow)
    train(trainee, SCHEDULE, SimpleNamespace(step=0), NEVER)
    assert counted == ["loss 1.0000", "loss 2.0000", "loss 3.0000"]
    assert len(skipped) == 2 and min(skipped) >= 0.05


def test_no_loss_is_fetched_unless_it_is_shown(monkeypatch):
    monkeypatch.setattr(Loss, "fetched", [])
    train(Trainee(), SCHEDULE, SimpleNamespace(step=0), NEVER)
    assert Loss.fetched == []


def test_the_loss_of_several_runs_is_the_mean_of_those_that_continue():
    assert describe(np.float32(0.25)) == "loss 0.2500"
    assert describe(np.array([1.0, np.nan, 2.0])) == "loss 1.5000"
    assert describe(np.array([np.nan, np.inf])) == "loss nan"


def test_all_are_closed_and_the_first_error_counts():
    closed = []

    def thing(name, error=None):
        def close():
            closed.append(name)
            if error:
                raise error

        return SimpleNamespace(close=close)

    with pytest.raises(UserError, match="within"), closing_all([thing("a", UserError("closing")), thing("b")]):
        raise UserError("within")
    assert closed == ["a", "b"]
    with pytest.raises(UserError, match="closing"), closing_all([thing("c", UserError("closing"))]):
        pass
