"""Commands that end badly, to see that the harness notices."""

import os
import signal
import sys
import time
from pathlib import Path

from simcse_jax.errors import UserError


def raises() -> None:
    raise RuntimeError("an unexpected error")


def hangs() -> None:
    Path("unfinished").unlink(missing_ok=True)
    if not os.fork():  # a process of its own, which must not outlive it
        time.sleep(1000)
    time.sleep(1000)


def crashes() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def says_nothing() -> None:
    sys.exit(2)


def says_it_twice() -> None:
    print("error: one", file=sys.stderr)
    raise UserError("two")


def leaves_a_file() -> None:
    Path("out.npy.tmp").write_text("half")
    raise UserError("the file text.txt is wrong")


def changes_its_input() -> None:
    Path("text.txt").write_text("other")


def names_nothing() -> None:
    raise UserError("something is wrong")


def writes_nonsense() -> None:
    Path("out.json").write_text('{"score": NaN}')


def writes_another_result() -> None:
    Path("out.json").write_text('{"score": 2}' if "--other" in sys.argv else '{"score": 1}')


def runs_code() -> None:
    Path("pwned").touch()


def takes_memory() -> None:
    print(len(bytearray(1 << 40)))


def is_refused() -> None:
    raise UserError("text.txt: is wrong")


def is_done() -> None:
    Path("out.json").write_text('{"score": 1}')
