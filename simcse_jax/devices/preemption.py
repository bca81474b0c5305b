"""Ending a run cleanly on SIGTERM, as before a machine is taken away, and on Ctrl-C (SIGINT)."""

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

import jax
from jax.experimental import multihost_utils

from simcse_jax.errors import Preempted
from simcse_jax.host import progress

ONE_PRESS = 1.0  # seconds in which all SIGINTs are one Ctrl-C: GNU timeout sends one to the process, one to its group
NOTHING = "no new step was done"


class Preemption:
    """Listens for SIGTERM and Ctrl-C from the start of a run to its end. The run saves after the step, and ends.

    A single process without a finished step ends immediately, since there is nothing to save. A second Ctrl-C, a second
    or more later, always ends it immediately. Python calls handlers only after a compilation has returned.

    In processes that `jax.distributed` has joined, JAX listens for SIGTERM: the signal may reach them at different
    times and a few steps apart, but all leave after the same step. A Ctrl-C becomes a SIGTERM there. An earlier
    handler of SIGTERM is called too: a sweep's, which has more runs to do.
    """

    def __init__(self) -> None:
        self._terminated = self._interrupted = self._training = False
        self._at_once = True  # a Ctrl-C need not wait, since nothing has to be saved
        self._saved = ""  # the work that is saved, for messages
        self._pressed = 0.0  # the time of the first Ctrl-C
        self._unsaved = 0  # steps before the run's own; the numbers of JAX's synchronization points only ever rise
        self._joined = jax.distributed.is_initialized()
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return  # handlers can be set in the main thread alone; a run in another one does not notice signals
        if not self._joined:
            self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._terminate)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a script's background
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True
        before = self._before[signal.SIGTERM]
        if callable(before):
            before(number, frame)
        if not self._training:
            raise self._left("SIGTERM")

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:
            if time.monotonic() - self._pressed < ONE_PRESS:
                return
            raise KeyboardInterrupt
        self._interrupted, self._pressed = True, time.monotonic()
        if self._at_once:
            raise self._stopped()
        text = "Ctrl-C: saving after this step; press it again to end immediately, without saving"
        progress.write(text, sys.stderr)
        if self._joined:
            os.kill(os.getpid(), signal.SIGTERM)

    def _left(self, signal_name: str) -> Preempted:
        saved, then = (self._saved, "resumes there") if self._saved else (NOTHING, "starts again")
        return Preempted(f"{signal_name}: {saved}; the same command {then}")

    def _stopped(self) -> KeyboardInterrupt:
        saved, then = (self._saved, "resume") if self._saved else (NOTHING, "start again")
        return KeyboardInterrupt(f"Ctrl-C: {saved}; {then} with:")

    def saved(self, what: str) -> None:
        """So much of the run is saved: "step 3", or another part of it."""
        self._saved = f"{what} is saved"

    def reached(self, step: int) -> bool:
        """Whether to save and leave after `step`; call it after every step."""
        self._training, self._at_once = True, False
        if self._joined:
            return multihost_utils.reached_preemption_sync_point(self._unsaved + step)
        return self._terminated or self._interrupted

    def pass_unsaved(self) -> None:
        """After a step that will not be saved, as of a fold's model, joined processes leave together if they must.

        A single process has left as soon as the signal came.
        """
        if self._joined:
            self._at_once, self._unsaved = False, self._unsaved + 1
            if multihost_utils.reached_preemption_sync_point(self._unsaved):
                raise self._left("Ctrl-C" if self._interrupted else "SIGTERM")

    def ended(self, step: int) -> BaseException:
        """The exception that ends the run, after it was saved at `step`."""
        if self._interrupted and not self._joined:  # joined processes end with one code
            return KeyboardInterrupt(f"Ctrl-C: saved at step {step}; resume with:")
        name = "Ctrl-C" if self._interrupted else "SIGTERM"
        return Preempted(f"{name}: saved at step {step}; the same command resumes there")

    def finish(self) -> None:
        """All steps are saved from now on, so a Ctrl-C ends the run immediately.

        Raises:
          KeyboardInterrupt: when there was one after the last step. Joined processes continue: the others would wait.
        """
        self._at_once, self._saved = True, "all steps were done and saved"
        if self._interrupted and not self._joined:
            raise self._stopped()

    def close(self) -> None:
        """Restores the earlier handlers."""
        for number, before in self._before.items():
            signal.signal(number, before or signal.SIG_DFL)
