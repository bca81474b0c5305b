"""How fast a run is, in its log lines; how far it is, on the bar."""

import collections
import time
from typing import Any

import jax
import numpy as np

from simcse_jax.host.progress import Progress

AHEAD, FEWEST = 1.0, 2  # the host's lead over the devices: at most these seconds, but at least these steps


class Speed:
    """Counts the work of steps, and the seconds that they take, since the last log line."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.steps = self._sentences = self._tokens = 0
        self._at_peak = self._waited = 0.0

    def add(self, sentences: int, tokens: int, at_peak: float = 0.0) -> None:
        """Counts a step."""
        self.steps += 1
        self._sentences += sentences
        self._tokens += tokens
        self._at_peak += at_peak

    def wait(self, seconds: float) -> None:
        """Counts seconds in which the devices had no step left, since its batch was still being read."""
        self._waited += seconds

    def skip(self, seconds: float) -> None:
        """Leaves out some seconds that have just passed."""
        self._start += seconds

    def line(self) -> dict[str, float]:
        """The figures of a log line.

        `seconds`, `sentences_per_second` and `tokens_per_second`; `waiting_for_data`, the share of the seconds in which
        the devices waited for a batch; and `share_of_peak`, where the device's peak is known: the FLOPs of the
        program's matrix products as a share of what it could compute in bfloat16 in that time.
        """
        seconds = time.perf_counter() - self._start
        line = {
            "seconds": seconds,
            "sentences_per_second": self._sentences / seconds,
            "tokens_per_second": self._tokens / seconds,
            "waiting_for_data": min(self._waited / seconds, 1.0),
        }
        return line | ({"share_of_peak": self._at_peak / seconds} if self._at_peak else {})


class Steps:
    """Follows the steps on the devices while the host dispatches later ones; shows how many have finished.

    Asking whether a step has finished does not wait for it. A loss is fetched when the bar or a line is about to show
    it, from a step that has finished.
    """

    def __init__(self, bar: Progress):
        """Counts on `bar`."""
        self._bar = bar
        self._running: collections.deque[Any] = collections.deque()  # losses; JAX does not declare is_ready
        self._began, self._finished, self._most = 0.0, 0, FEWEST

    def add(self, loss: jax.Array) -> None:
        """Adds a step by its loss, and counts the steps that have finished.

        Waits where the host is more than `AHEAD` before the devices, at the rate of the steps until now: a run that is
        to end, because of a signal, first finishes what was dispatched.
        """
        self._began = self._began or time.monotonic()
        self._running.append(loss)
        while self._running and (self._running[0].is_ready() or len(self._running) > self._most):
            self._count()

    def wait(self) -> None:
        """Waits for all steps, and counts each as it finishes."""
        while self._running:
            self._count()

    def _count(self) -> None:
        loss = jax.block_until_ready(self._running.popleft())
        self._finished += 1
        self._most = max(FEWEST, int(AHEAD * self._finished / max(time.monotonic() - self._began, 1e-6)))
        self._bar.advance(1, lambda: describe(np.asarray(loss)))


def describe(loss: np.ndarray) -> str:
    """The loss as text."""
    return f"loss {loss:.4f}"
