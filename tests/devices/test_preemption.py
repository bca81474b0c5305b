import contextlib
import hashlib
import os
import signal
import sys
import threading
import time

import pytest

from simcse_jax.devices import preemption as module
from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import Preempted


@pytest.fixture
def preemption():
    with contextlib.closing(Preemption()) as preemption:
        yield preemption


@pytest.fixture(autouse=True)
def ended(monkeypatch):
    """What would end this process."""
    calls = []
    monkeypatch.setattr(module, "end_process", lambda: calls.append(threading.current_thread()))
    return calls


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0.05)  # until the thread that answers has done so


def test_before_the_first_step_a_signal_ends_the_run_at_once(preemption, capfd):
    with pytest.raises(Preempted, match="no step was done yet"):
        send(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt, match="Ctrl-C: no step was done yet; start again with:"):
        send(signal.SIGINT)
    assert not preemption._training


def test_sigterm_is_noted_until_closed():
    before = signal.getsignal(signal.SIGTERM)
    preemption = Preemption()
    assert not preemption.reached(1)
    send(signal.SIGTERM)
    assert preemption.reached(2) and preemption.reached(3)
    assert isinstance(preemption.ended(3), Preempted)
    assert str(preemption.ended(3)) == "SIGTERM: saved at step 3; the same command resumes there"
    preemption.close()
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_is_answered_and_noted_and_a_second_one_ends_the_process(preemption, ended, capsys):
    assert not preemption.reached(1)
    send(signal.SIGINT)
    said = "Ctrl-C: saving after this step; press it again to end immediately, without saving\n"
    assert capsys.readouterr().err == said
    assert preemption.reached(2) and ended == []
    error = preemption.ended(2)
    assert isinstance(error, KeyboardInterrupt) and str(error) == "Ctrl-C: saved at step 2; resume with:"
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)
    time.sleep(0.05)
    assert len(ended) == 1 and ended[0] is not threading.main_thread()


def test_the_answer_does_not_wait_for_the_main_thread(preemption, capsys):
    """As while it compiles: the handler in the main thread is held off, the answer is not."""
    preemption.reached(1)
    handled, handler = [], signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *args: handled.append(capsys.readouterr().err))
    busy = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    busy.start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000)  # one call that lets other threads run, as a compilation does
    busy.join()
    assert "saving after this step" in handled[0]
    signal.signal(signal.SIGINT, handler)


def test_after_the_last_step_a_ctrl_c_ends_the_run_at_once(preemption):
    preemption.reached(1)
    preemption.finish()
    with pytest.raises(KeyboardInterrupt, match="all steps were done and saved; resume with:"):
        send(signal.SIGINT)


def test_a_ctrl_c_in_the_last_step_is_not_lost(preemption):
    preemption.reached(1)
    send(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="all steps were done"):
        preemption.finish()


def test_a_run_that_ignores_ctrl_c_still_does():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.closing(Preemption()) as preemption:
        preemption.reached(1)
        send(signal.SIGINT)
        assert not preemption.reached(2)
    signal.signal(signal.SIGINT, before)


def test_handlers_and_the_wakeup_descriptor_are_restored():
    before = signal.getsignal(signal.SIGINT), threading.active_count()
    with contextlib.closing(Preemption()):
        assert (signal.getsignal(signal.SIGINT), threading.active_count()) != before
    assert (signal.getsignal(signal.SIGINT), threading.active_count()) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_thread_other_than_the_main_one_leaves_signals_alone():
    before = signal.getsignal(signal.SIGINT)
    found = []

    def run():
        with contextlib.closing(Preemption()) as preemption:
            found.append((signal.getsignal(signal.SIGINT), preemption.reached(1)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [(before, False)]


def test_a_second_ctrl_c_in_a_notebook_leaves_the_kernel_alive(monkeypatch):
    monkeypatch.undo()  # the real end_process
    monkeypatch.setitem(sys.modules, "ipykernel", module)
    assert module.end_process() is None
