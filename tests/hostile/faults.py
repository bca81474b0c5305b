"""A command that ends badly, to see that the harness notices."""

import os
import signal
import sys
import time
from pathlib import Path

from simcse_jax.errors import UserError


def end() -> None:
    """As its first argument says; an undamaged input has no second one."""
    match sys.argv[1]:
        case "raises":
            raise RuntimeError("an unexpected error")
        case "hangs":
            os.fork()  # a process of its own, which must not outlive it
            time.sleep(1000)
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "says nothing":
            sys.exit(2)
        case "says it twice":
            print("error: one", file=sys.stderr)
            raise UserError("two")
        case "leaves a file":
            Path("out.npy.tmp").write_text("half")
            raise UserError("the file text.txt is wrong")
        case "changes its input":
            Path("text.txt").write_text("other")
        case "names nothing":
            raise UserError("something is wrong")
        case "writes nonsense":
            Path("out.json").write_text('{"score": NaN}')
        case "writes another result":
            Path("out.json").write_text('{"score": 2}' if "--other" in sys.argv else '{"score": 1}')
        case "runs code":
            Path("pwned").touch()
        case "takes memory":
            print(len(bytearray(1 << 40)))
        case "is refused":
            raise UserError("text.txt: is wrong")
        case "is done":
            Path("out.json").write_text('{"score": 1}')
