"""How fast a run is, in its log lines; how far it is, on the bar."""

import collections
import time
from typing import Any

import jax
import numpy as np

from simcse_jax.host.progress import Progress

AHEAD, FEWEST = 1.0, 2  # the host may be so many seconds before the devices, or so many steps, if these take longer


class Speed:
    """Counts the work of steps, and the seconds that they take, since the last log line."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.steps = self._sentences = self._tokens = 0
        self._at_peak = self._waited = 0.0

    def add(self, sentences: int, tokens: int, at_peak: float = 0.0) -> None:
        """Counts a step.

        Args:
          sentences: of its batch.
          tokens: of these sentences, without padding; each counts once, however often it is encoded.
          at_peak: the seconds of its matrix products at the device's peak; 0.0 where that is not known.
        """
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
    """Follows the steps on the devices, ahead of which the host dispatches others; shows those that have finished.

    Asking whether a step has finished does not wait for it. A loss is fetched when the bar or a line is about to show
    it, from a step that has finished.
    """

    def __init__(self, bar: Progress):
        """Counts on `bar`."""
        self._bar = bar
        self._running: collections.deque[tuple[float, Any]] = collections.deque()  # when dispatched; the loss

    def dispatched(self, loss: jax.Array) -> None:
        """Adds a step by its loss, and counts the steps that have finished.

        Waits where the host is more than `AHEAD` before the devices: a run that is to end, because of a signal, first
        finishes what was dispatched.
        """
        self._running.append((time.monotonic(), loss))
        while self._running and (self._running[0][1].is_ready() or self._is_far_ahead):
            self._count()

    @property
    def _is_far_ahead(self) -> bool:
        return len(self._running) > FEWEST and self._running[-1][0] - self._running[0][0] > AHEAD

    def wait(self) -> None:
        """Waits for all steps, and counts each as it finishes."""
        while self._running:
            self._count()

    def _count(self) -> None:
        _, loss = self._running.popleft()
        jax.block_until_ready(loss)
        self._bar.advance(1, lambda: describe(np.asarray(loss)))


def describe(loss: np.ndarray) -> str:
    """The loss for people; the mean over the runs that are trained together, without those that were given up."""
    finite = loss[np.isfinite(loss)]
    return f"loss {finite.mean():.4f}" if finite.size else f"loss {loss.flat[0]}"
