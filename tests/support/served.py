"""A server in a process of its own, as a user starts it."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import httpx

from support import ROOT, xla_flags


class Served(NamedTuple):
    """A server that is ready."""

    url: str
    process: subprocess.Popen
    said: list[str]  # lines


@contextlib.contextmanager
def served(*arguments: object, **environment: str) -> Iterator[Served]:
    """Serves for as long as the block lasts; ends it by SIGTERM, if the block has not."""
    command = [sys.executable, "-m", "simcse_jax", "serve", *map(str, arguments), "--port", "0"]
    settings = {**os.environ, "XLA_FLAGS": xla_flags(), **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=settings, **pipes) as process:
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if found := re.search(r": (http://\S+)/v1 \(", line):
                break
        else:
            raise AssertionError("".join(said))
        rest = threading.Thread(target=lambda: said.extend(process.stdout), daemon=True)
        rest.start()
        try:
            with httpx.Client() as client:  # each `httpx.get` would read all of the certificates again
                while client.get(f"{found[1]}/ready").status_code != 200:
                    time.sleep(0.1)
            yield Served(found[1], process, said)
        finally:
            process.terminate()
            rest.join(timeout=60)
    assert "Traceback" not in "".join(said), "".join(said)
