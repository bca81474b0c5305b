"""Contenders that compute nothing; not in `support`, with which their processes would import JAX."""

import os
from pathlib import Path

from benchmarks.contender import Done


def steady(log="", name="", work=4, seconds=2.0, notes=None, memory_mib=0):
    """Each round claims to take `seconds`, and adds its name to a file."""
    print("a library's output is not an answer")
    ballast = bytearray(os.urandom(1 << 20)) * memory_mib

    def do_round():
        if log:
            with Path(log).open("a") as file:
                file.write(f"{name}\n")
        return Done(work, notes or {}, seconds)

    do_round.ballast = ballast
    return do_round


def unbuildable(message):
    raise ImportError(message)


def dies():
    print("Killed: no memory is left")
    os._exit(9)


def fails_later():
    rounds = iter((1, 2))

    def do_round():
        return Done(next(rounds), {}, 1.0)

    return do_round
