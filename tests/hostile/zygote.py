"""Runs commands in forks of a process that has imported the package and started no JAX backend.

A new interpreter takes seconds to import the package; a fork takes milliseconds. A forked child may start a JAX
backend of its own, as long as its parent has none. `Zygote` starts that process and asks it to run commands; the
process itself is `python zygote.py`, which reads a request a line and answers with a line.
"""

import gc
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60
MEMORY, LARGEST_FILE, PROCESSOR_SECONDS = 8 << 30, 100 << 20, 90
HUNG = "hung"  # in place of an exit code
# What commands import only when they need it; a fork that finds it imported saves up to a second. Not lancedb, which
# starts a thread: what it imports.
LATER = (
    *("transformers.models.auto.tokenization_auto", "transformers.models.bert.configuration_bert"),
    *("transformers.tokenization_utils_tokenizers", "transformers.integrations.mistral", "tokenizers.trainers"),
    *("safetensors.numpy", "scipy.stats", "jaxlib.mlir.dialects.mhlo", "jaxlib.mlir.dialects.builtin"),
    *("matplotlib.pyplot", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "PIL.GifImagePlugin"),
    *("pandas", "pyarrow.parquet", "pyarrow.dataset", "lance_namespace", "multiprocessing.synchronize"),
)


class Done(NamedTuple):
    """How a command ended."""

    code: int | str  # the exit code, minus a signal's number, or HUNG
    out: str
    err: str
    seconds: float


class Zygote:
    """The process that forks; it lives as long as the `with` block."""

    def __init__(self, environment: Mapping[str, str], imports: bool = True):
        """`imports`: whether it imports the package first, for commands of the package."""
        environment = {**environment, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, *(["--import"] if imports else [])],
            **{"env": environment, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE},
            **{"text": True, "start_new_session": True},
        )

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # it ends with its input

    def run(self, command: str, arguments: Sequence[str], folder: Path, **options: Any) -> Done:
        """Runs a command, or MODULE:FUNCTION, in `folder`; its outputs and temporary files go to `folder` + ".own".

        Options: `stdin`, a text; `stdout`, the path of a file or device, empty for a closed one; its `encoding`;
        `drop`, whether root gives up its right to read and write any file; `seconds` until it is killed.
        """
        own = folder.with_name(folder.name + ".own")
        own.mkdir()
        (own / "in").write_bytes(options.pop("stdin", "").encode("utf-8", "surrogateescape"))
        arguments = [argument.replace("{folder}", folder.name) for argument in arguments]
        request = {"command": command, "arguments": arguments, "folder": str(folder), "own": str(own)} | options
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        out, err = ((own / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        return Done(answer["code"], out, err, answer["seconds"])


def serve() -> None:
    """Answers requests until the input ends."""
    import time

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    requests = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _protect_devices()
    if "--import" in sys.argv:
        _import_everything()
    gc.collect()
    gc.freeze()  # a collection in a fork would write to, and so copy, every page of these objects
    for line in requests:
        request = json.loads(line)
        start = time.monotonic()
        child = os.fork()
        if not child:
            _become(request)  # does not return
        code = _wait(child, request.get("seconds", SECONDS))
        answers.write(json.dumps({"code": code, "seconds": time.monotonic() - start}) + "\n")
        answers.flush()


def _protect_devices() -> None:
    """For root: in this process and its forks nothing in /dev can be replaced or removed, whatever a command does."""
    import ctypes

    if os.getuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, recursive, private, bind, remount, read_only = 0x20000, 0x4000, 0x40000, 0x1000, 0x20, 0x1
    steps = [(b"none", b"/", recursive | private), (b"/dev", b"/dev", bind | recursive)]
    steps += [(b"none", b"/dev", remount | bind | read_only)]
    mount = lambda source, target, flags: libc.mount(source, target, None, flags, None)  # noqa: E731
    if libc.unshare(new_namespace) or any(mount(*step) for step in steps):
        print("hostile: /dev cannot be protected here; the cases use devices of their own", file=sys.stderr)


def _import_everything() -> None:
    import contextlib
    import importlib
    import pkgutil

    import simcse_jax

    for module in pkgutil.walk_packages(simcse_jax.__path__, "simcse_jax."):
        if not module.name.startswith(("simcse_jax.configs", "simcse_jax.adapters")):  # large, and no command
            importlib.import_module(module.name)
    for name in LATER:
        with contextlib.suppress(ModuleNotFoundError):  # of another version of a library
            importlib.import_module(name)
    from jax._src import xla_bridge

    assert not xla_bridge._backends, "a backend was started by importing"


def _wait(child: int, seconds: float) -> int | str:
    """The child's exit code; after it, everything it started is killed."""
    import contextlib
    import signal

    handle = os.pidfd_open(child)
    in_time = select.select([handle], [], [], seconds)[0]
    os.close(handle)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if in_time else HUNG


def _become(request: dict[str, Any]) -> None:
    """Turns the forked child into the command, and ends as the interpreter would."""
    code = 1
    try:
        _prepare(request)
        code = _run(request["command"])
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _prepare(request: dict[str, Any]) -> None:
    import resource
    import signal
    import tempfile

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    own = Path(request["own"])
    (own / "out").touch()
    outputs = [request.get("stdout", own / "out") or own / "closed", own / "err"]
    for number, path in ((0, own / "in"), *enumerate(outputs, 1)):
        flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY
        os.dup2(os.open(path, flags, 0o600), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    encoding = request.get("encoding", "utf-8")
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", buffering=1, closefd=False)
    if request.get("stdout") == "":  # as `>&-` leaves it
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]
    (own / "tmp").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(own / "tmp")
    os.environ |= request.get("environment", {})
    os.chdir(request["folder"])
    command = request["command"]
    start = ["simcse_jax"] if command == "__main__" else ["simcse_jax", command]
    sys.argv = [" ".join(["python", "-m", *start]), *request["arguments"]]
    sys.orig_argv = [sys.executable, "-m", *start, *request["arguments"]]
    if request.get("drop"):
        _drop_rights_of_root()
    limits = {"AS": MEMORY, "FSIZE": LARGEST_FILE, "CPU": PROCESSOR_SECONDS, "CORE": 0}
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def _run(command: str) -> int:
    """Runs it, and returns the exit code; an output that cannot be flushed is code 120, as in CPython."""
    import importlib
    import threading
    import traceback

    from simcse_jax.commands.command_line import run_command
    from simcse_jax.commands.verbs import make_main

    # Which would serve until they are interrupted.
    if server := {"demo": "simcse_jax.commands.demo", "serve": "simcse_jax.serving.server"}.get(command):
        importlib.import_module(server).serve = lambda *args, **kwargs: None
    code = 1
    try:
        if command == "__main__":
            importlib.import_module("simcse_jax.__main__").main()
        elif ":" in command:
            module, _, function = command.partition(":")
            run_command(getattr(importlib.import_module(module), function))
        else:
            run_command(make_main(command))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except Exception:
        traceback.print_exc()
        code = 120
    sys.stderr.flush()
    return code


def _drop_rights_of_root() -> None:
    """Gives up CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, so that modes of files mean something to root too."""
    import ctypes
    import struct

    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.capget(header, data)
    words = list(struct.unpack("=6I", data.raw[:24]))
    words[0] &= ~0b110  # of the effective ones
    words[1] &= ~0b110  # and of the permitted ones, which access(2) looks at
    data = ctypes.create_string_buffer(struct.pack("=6I", *words))
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    serve()
