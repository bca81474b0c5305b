"""Commands in processes of their own that need not import the package again.

`Fork` is a `subprocess.Popen` of `python -m simcse_jax COMMAND`, or of a benchmark. Its process is forked from one that
has imported the package and started no JAX backend. Apart from that it is a process as a user starts it: it runs the
module as `__main__`, has its own outputs, environment and folder, takes signals, and ends as the interpreter ends.
"""

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Mapping
from pathlib import Path

from .lowering import share_contexts
from .warm import import_later

TESTS = Path(__file__).resolve().parent.parent
# What libraries read when they are imported: with other values a process must import them itself.
IMPORTED = ("JAX_", "HF_", "PYTHON", "LD_", "OMP_", "OPENBLAS_", "MPL", "SSL_", "CUDA", "TF_", "LC_", "LANG", "HOME")
IMPORTED += ("NO_GCE_", "TORCH", "TRANSFORMERS_", "TOKENIZERS_", "MKL_", "KMP_")
# What scikit-learn, PyTorch and our tokenizers set in the tests' process, when something imports them.
THEIRS = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR", "TRANSFORMERS_NO_ADVISORY_WARNINGS"}
THEIRS |= {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK"}  # by what compiles for a GPU
# Settings that a fork changes after JAX was imported, with the values that they have without a variable.
SETTINGS = {"JAX_COMPILATION_CACHE_DIR": None, "JAX_ENABLE_COMPILATION_CACHE": "true"}
SETTINGS |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1.0"}
# A variable with other values of constants, "MODULE.NAME=NUMBER ...", so that a fork waits less than a user's process.
CONSTANTS = "TESTS_CONSTANTS"
ENVIRONMENT = dict(os.environ)  # the tests' own, before any of them changes it
LARGEST = 2**17  # of a request, in bytes


class Fork(subprocess.Popen):
    """`Fork([sys.executable, "-m", "simcse_jax.main", ...], cwd=..., env=..., stdout=..., stderr=...)`."""

    def _execute_child(self, args, *given):
        cwd, env = given[4:6]
        pipes = given[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        ended, ends = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        request = {"args": list(args[2:]), "cwd": str(cwd or os.getcwd()), "env": dict(env or os.environ)}
        files = [other if file == -1 else file for file, other in ((stdin, nothing), (stdout, 1), (stderr, 2))]
        warm = _warm()
        try:
            socket.send_fds(warm, [json.dumps(request).encode()], [*files, ends])
            self.pid = int(warm.recv(32))
        finally:
            os.close(nothing)
            os.close(ends)
            self._close_pipe_fds(*pipes)
        self._child_created = True
        self._ended = os.fdopen(ended, "rb", buffering=0)

    def _try_wait(self, wait_flags):
        """The process is the child of another one, which sends how it ended."""
        os.set_blocking(self._ended.fileno(), not wait_flags & os.WNOHANG)
        status = self._ended.read(8)
        if status is None:
            return 0, 0
        self._ended.close()
        return self.pid, int(status or signal.SIGKILL)

    def _internal_poll(self, _deadstate=None, **others):
        if self.returncode is None and hasattr(self, "_ended") and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid and self.returncode is None:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def start(args: list[str], env: dict[str, str], **options) -> subprocess.Popen:
    """A process of `python -m simcse_jax...` or `benchmarks...`: a fork, if it would import all as the tests did."""
    changed = differences(env)
    known = args[:2] == [sys.executable, "-m"] and args[2].partition(".")[0] in ("simcse_jax", "benchmarks")
    forked = not changed and known and sys.platform == "linux"
    assert forked or CONSTANTS not in env, (args, changed)
    return (Fork if forked else subprocess.Popen)(args, env=env, **options)


def differences(environment: Mapping[str, str]) -> list[str]:
    """The variables that libraries read when they are imported, and that had other values when the tests began."""
    names = {name for name in (*environment, *ENVIRONMENT) if name.startswith(IMPORTED)} - SETTINGS.keys() - THEIRS
    return sorted(name for name in names if environment.get(name) != ENVIRONMENT.get(name))


@functools.cache
def _warm() -> socket.socket:
    """The connection to this process's warm one, which ends with it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    environment = ENVIRONMENT | {"PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", f"from support import forks; forks.serve({its.fileno()})"]
    warm = subprocess.Popen(command, cwd=TESTS.parent, env=environment, pass_fds=[its.fileno()])
    its.close()
    atexit.register(lambda: (ours.close(), warm.wait()))
    return ours


def serve(connection: int) -> None:
    """The warm process, and in its forks the command."""
    import_later()
    from jax._src import xla_bridge

    assert not xla_bridge._backends, "a backend was started by importing"
    share_contexts()
    logging.root.handlers.clear()  # Orbax, when it is imported, lets all loggers speak; not every command imports it
    gc.collect()
    gc.freeze()  # so that the forks share its memory
    if module := _next(socket.socket(fileno=connection)):
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _next(requests: socket.socket) -> str | None:
    """Forks a process for each request. Returns in that process, with the name of its module; None at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which ends the tests and their commands
    while True:
        message, files, _, _ = socket.recv_fds(requests, LARGEST, 4)
        if not message:
            return None
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not _fork():
            break
        for file in files:
            os.close(file)
    if child := _fork():  # this process waits for the command's end
        requests.send(str(child).encode())
        for file in files[:3]:
            os.close(file)
        os.write(files[3], str(os.waitpid(child, 0)[1]).encode())
        os._exit(0)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, 4096)
    encoding = sys.stdout.encoding
    sys.stdin = open(0, encoding=encoding)
    sys.stdout = open(1, "w", encoding=encoding)
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    request = json.loads(message)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    _set(request["env"])
    tempfile.tempdir = None  # chosen again, in this environment
    sys.path.remove(str(TESTS))
    module, *args = request["args"]
    sys.argv = ["-m", *args]
    sys.orig_argv = [sys.executable, "-m", module, *args]
    sys.modules.pop(module if "." in module else f"{module}.__main__", None)  # it runs as `__main__`
    return module


def _set(environment: dict[str, str]) -> None:
    """What a new process would read from the environment while it imports JAX, and the tests' constants."""
    import jax

    for name, default in SETTINGS.items():
        value = environment.get(name, default)
        if value != ENVIRONMENT.get(name, default):
            parse = {bool: lambda text: text.lower() in ("1", "true"), float: float}.get(
                type(getattr(jax.config, name.lower())), str
            )
            jax.config.update(name.lower(), value and parse(value))
    for constant in environment.get(CONSTANTS, "").split():
        place, _, value = constant.partition("=")
        module, _, name = place.rpartition(".")
        setattr(importlib.import_module(module), name, float(value))
    if CONSTANTS in environment:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("gcsfs.retry").asyncio = Soon


class Soon:
    """In place of asyncio where gcsfs waits before it tries again, 31 seconds in all."""

    @staticmethod
    def sleep(seconds: float) -> Awaitable[None]:
        return asyncio.sleep(seconds / 20)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's, whose threads are not running yet
        return os.fork()
