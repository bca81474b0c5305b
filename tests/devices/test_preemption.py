import os
import signal

import pytest

from simcse_jax.devices.preemption import Preemption
from simcse_jax.errors import Preempted


def test_before_the_first_step_sigterm_ends_the_run_at_once():
    preemption = Preemption()
    with pytest.raises(Preempted, match="no step was done yet"):
        os.kill(os.getpid(), signal.SIGTERM)
    preemption.close()


def test_sigterm_is_noted_until_closed():
    before = signal.getsignal(signal.SIGTERM)
    preemption = Preemption()
    assert not preemption.reached(1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert preemption.reached(2) and preemption.reached(3)
    preemption.close()
    assert signal.getsignal(signal.SIGTERM) is before
