"""A machine that is about to be taken away says so with SIGTERM."""

import signal
import threading
from types import FrameType

import jax
from jax.experimental import multihost_utils

from simcse_jax.errors import Preempted


class Preemption:
    """Listens for SIGTERM from the start of a run to its end.

    For processes that `jax.distributed` has joined, JAX listens: the signal may reach them at different times and a few
    steps apart, and they leave after the same step. A process on its own leaves at once as long as no step is done. An
    earlier handler is called too: that of a sweep, which has more runs to do.
    """

    def __init__(self) -> None:
        self._received = self._training = False
        self._joined = jax.distributed.is_initialized()
        # Handlers can be set in the main thread alone; elsewhere a run does not notice.
        self._listens = not self._joined and threading.current_thread() is threading.main_thread()
        if self._listens:
            self._before = signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = True
        if callable(self._before):
            self._before(number, frame)
        if not self._training:
            raise Preempted("SIGTERM: no step was done yet; the same command starts again")

    def reached(self, step: int) -> bool:
        """Whether to save and leave after `step`; to be asked after every step."""
        self._training = True
        return multihost_utils.reached_preemption_sync_point(step) if self._joined else self._received

    def close(self) -> None:
        """Gives SIGTERM back its meaning."""
        if self._listens:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
