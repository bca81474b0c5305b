from types import SimpleNamespace

import pytest

from simcse_jax.errors import Preempted, UserError
from simcse_jax.training.loop import closing_all, train
from simcse_jax.training.schedule import Schedule


class Trainee:
    """Writes down what the loop asks of it."""

    def __init__(self):
        self.said = []

    def read(self, step):
        self.said.append(f"read {step}")
        return step

    def compile(self, step, state, batch):
        self.said.append(f"compile {step}")

    def update(self, step, state, batch):
        assert step == batch == state.step
        self.said.append(f"update {step}")
        return SimpleNamespace(step=step + 1)

    def log(self, number):
        self.said.append(f"log {number}")
        return {}

    def look(self, number, state, due, preempted):
        assert state.step == number
        what = [name for name in ("measure", "score", "save") if getattr(due, name)] + ["preempted"] * preempted
        self.said.append(f"look {number}: {' '.join(what)}")


NEVER = SimpleNamespace(reached=lambda step: False)
SCHEDULE = Schedule(total=3, log_every=2, score_every=2, measure_every=0, keep_every=0)


def test_the_next_batch_is_read_while_a_step_runs_and_what_is_due_comes_after_it():
    trainee = Trainee()
    assert train(trainee, SCHEDULE, SimpleNamespace(step=0), NEVER).step == 3
    assert trainee.said == [
        *("read 0", "compile 0", "look 0: score"),
        *("update 0", "read 1", "log 1"),
        *("update 1", "read 2", "log 2", "look 2: score save"),
        *("update 2", "log 3", "look 3: score save"),
    ]


def test_a_resumed_run_does_not_look_at_its_start_and_a_finished_one_does_nothing():
    trainee = Trainee()
    train(trainee, SCHEDULE, SimpleNamespace(step=2), NEVER)
    assert trainee.said == ["read 2", "compile 2", "update 2", "log 3", "look 3: score save"]
    finished = Trainee()
    train(finished, SCHEDULE, SimpleNamespace(step=3), NEVER)
    assert finished.said == []


def test_who_is_preempted_saves_first_but_a_last_step_is_the_end():
    trainee = Trainee()
    with pytest.raises(Preempted, match="saved at step 1; the same command goes on"):
        train(trainee, SCHEDULE, SimpleNamespace(step=0), SimpleNamespace(reached=lambda step: True))
    assert trainee.said[-1] == "look 1: preempted"
    train(Trainee(), SCHEDULE, SimpleNamespace(step=2), SimpleNamespace(reached=lambda step: True))


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
