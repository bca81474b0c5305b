import contextlib
import os
import signal
import threading

import pytest

from simcse_jax.devices import preemption as module
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import Preempted


@pytest.fixture
def preemption():
    with contextlib.closing(Preemption()) as preemption:
        yield preemption


def send(number):
    os.kill(os.getpid(), number)


def test_before_the_first_step_a_signal_ends_the_run_at_once_and_a_resumed_one_names_its_step(preemption):
    for saved, then in (("no new step was done", "starts? again"), ("step 500 is saved", "resume")):
        with pytest.raises(Preempted, match=f"SIGTERM: {saved}; the same command {then}"):
            send(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt, match=f"Ctrl-C: {saved}; {then}"):
            send(signal.SIGINT)
        assert not preemption._training
        preemption.saved("step 500")
        preemption._interrupted = False  # as a run that starts again


def test_sigterm_is_noted_until_closed_and_handlers_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with contextlib.closing(Preemption()) as preemption:
        assert signal.getsignal(signal.SIGINT) != before[1]
        assert not preemption.reached(1)
        send(signal.SIGTERM)
        assert preemption.reached(2) and preemption.reached(3)
        assert isinstance(preemption.ended(3), Preempted)
        assert str(preemption.ended(3)) == "SIGTERM: saved at step 3; the same command resumes there"
    found = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert found == before


def test_ctrl_c_is_answered_and_noted_and_a_second_one_ends_the_run(preemption, capsys, monkeypatch):
    assert not preemption.reached(1)
    for _ in range(2):  # signals that come together are one Ctrl-C
        send(signal.SIGINT)
    said = "Ctrl-C: saving after this step; press it again to end immediately, without saving\n"
    assert capsys.readouterr().err == said
    assert preemption.reached(2)
    error = preemption.ended(2)
    assert isinstance(error, KeyboardInterrupt) and str(error) == "Ctrl-C: saved at step 2; resume with:"
    monkeypatch.setattr(module, "ONE_PRESS", 0)
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)


def test_joined_processes_leave_with_one_code_and_finish_after_a_ctrl_c_in_the_last_step(preemption, monkeypatch):
    monkeypatch.setattr(module.multihost_utils, "reached_preemption_sync_point", [3].__contains__)
    monkeypatch.setattr(preemption, "_joined", True)
    signal.signal(signal.SIGTERM, lambda *_: None)  # JAX notes it; set back when the run closes
    assert not preemption.reached(1)
    send(signal.SIGINT)
    assert not preemption.reached(2) and preemption.reached(3)
    error = preemption.ended(3)
    assert isinstance(error, Preempted) and str(error) == "Ctrl-C: saved at step 3; the same command resumes there"
    preemption.finish()


def test_joined_processes_leave_a_fold_together_and_the_run_goes_on_counting_its_steps(preemption, monkeypatch):
    asked = []
    monkeypatch.setattr(module.multihost_utils, "reached_preemption_sync_point", lambda n: asked.append(n) or n == 3)
    preemption.pass_unsaved()  # alone, the signal's handler has ended the run
    assert not asked
    monkeypatch.setattr(preemption, "_joined", True)
    preemption.saved("fold 1 of 5")
    preemption.pass_unsaved()
    preemption.pass_unsaved()
    with pytest.raises(Preempted, match=r"^SIGTERM: fold 1 of 5 is saved; the same command resumes there$"):
        preemption.pass_unsaved()
    assert not preemption.reached(1) and asked == [1, 2, 3, 4]


def test_a_ctrl_c_in_the_last_step_or_after_it_ends_the_run(preemption):
    preemption.reached(1)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt, match="all steps were done and saved; resume with:"):
            send(signal.SIGINT)
            preemption.finish()


def test_a_run_that_ignores_ctrl_c_still_does_and_a_thread_other_than_the_main_one_leaves_signals_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.closing(Preemption()) as preemption:
        preemption.reached(1)
        send(signal.SIGINT)
        assert not preemption.reached(2)
    signal.signal(signal.SIGINT, before)
    found = []

    def run():
        with contextlib.closing(Preemption()) as preemption:
            found.append((signal.getsignal(signal.SIGINT), preemption.reached(1)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [(before, False)]
