import os
import signal

from simcse_jax.preemption import Preemption


def test_sigterm_is_noted_until_closed():
    before = signal.getsignal(signal.SIGTERM)
    preemption = Preemption()
    assert not preemption.reached(1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert preemption.reached(2) and preemption.reached(3)
    preemption.close()
    assert signal.getsignal(signal.SIGTERM) is before
