"""A machine that is about to be taken away says so with SIGTERM."""

import signal
import threading
from types import FrameType

import jax
from jax.experimental import multihost_utils


class Preemption:
    """Listens for SIGTERM while a run is under way."""

    def __init__(self):
        """Starts to listen. With several processes JAX has done so since they joined."""
        self._told = False
        self._before = None
        # Handlers can be set in the main thread alone; elsewhere a run can't be told.
        if jax.process_count() == 1 and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self._told = True

    def reached(self, step: int) -> bool:
        """Whether to save and leave after `step`; to be asked after every step.

        Processes may be told at different times and be a few steps apart; they leave after the same step.
        """
        return self._told if jax.process_count() == 1 else multihost_utils.reached_preemption_sync_point(step)

    def close(self) -> None:
        """Gives SIGTERM back its meaning."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
