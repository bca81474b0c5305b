import time

import numpy as np
import pytest

from simcse_jax.host.progress import Progress
from simcse_jax.training.speed import Speed, Steps, describe


def test_a_line_has_the_work_of_all_steps_in_the_seconds_that_count_and_the_share_of_a_known_peak(monkeypatch):
    now = iter([10.0, 20.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    speed = Speed()
    for tokens in (900, 700):
        speed.add(64, tokens)
    speed.wait(1.0)
    speed.skip(2.0)
    expected = {"seconds": 8.0, "sentences_per_second": 16.0, "tokens_per_second": 200.0, "waiting_for_data": 0.125}
    assert speed.line() == expected
    monkeypatch.undo()
    speed = Speed()
    for share in (1e-3, 2e-3):
        speed.add(1, 1, at_peak=share)
    line = speed.line()
    assert line["share_of_peak"] * line["seconds"] == pytest.approx(3e-3)
    assert "share_of_peak" not in Speed().line()
    for loss, said in ((0.25, "0.2500"), (np.nan, "nan")):
        assert describe(np.float32(loss)) == f"loss {said}"


@pytest.mark.parametrize("seconds", [0.01, 0.3, 10.0])
def test_the_host_is_a_second_or_two_steps_ahead_of_the_devices_at_most(seconds, monkeypatch):
    """So a signal ends a run soon, however long a step takes, and the devices have always work."""
    now, ends = [100.0], [100.0]  # the devices finish steps one after the other, each `seconds` after its start

    class Loss:
        def __init__(self):
            self.end = max(ends[-1], now[0]) + seconds
            ends.append(self.end)

        def is_ready(self):
            return self.end <= now[0]

        def block_until_ready(self):
            now[0] = max(now[0], self.end)
            return self

        def __array__(self, dtype=None, copy=None):
            return np.float32(1)

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    steps, ahead = Steps(Progress(300, "steps", shown=False)), []
    for _ in range(300):
        now[0] += 0.001  # what the host has to do itself
        steps.add(Loss())
        ahead.append(ends[-1] - now[0])
    assert max(ahead) <= max(1.0, 2 * seconds) + 1e-6 and np.median(ahead) > max(0.9, 1.9 * seconds)
    steps.wait()
    assert now[0] == pytest.approx(100.001 + 300 * seconds)
