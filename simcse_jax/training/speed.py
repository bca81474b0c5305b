"""How fast a run is: what its log lines have in addition to a step's metrics."""

import time


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
