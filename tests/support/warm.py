"""Commands in processes of their own that start in no time and can be killed at a chosen place.

`Warm` starts a process that has imported the package and started no JAX backend; it forks for each command. In the
fork every call that changes a file of the watched folder is counted: it is opened for writing, made, renamed, removed,
or written to the disk. The command can be killed before the n-th of them, or after some seconds.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "fcntl.flock"}
COMMANDS = ("train", "encode", "search", "export", "sweep", "prepare")
LATER = ("simcse_jax.training.run", "simcse_jax.training.sweeps.runner", "simcse_jax.training.sweeps.table")
LATER += ("simcse_jax.simcse", "simcse_jax.runs.loading", "simcse_jax.runs.model_card", "simcse_jax.index.folder")
LATER += ("simcse_jax.bulk.resumable", "simcse_jax.index.results_table", "simcse_jax.data.corpus.making")
LEFT = (".lock", ".tmp", ".new", ".old", ".partial", ".state.json")  # ends of names of what is not finished
TOO_LONG = 120  # seconds


class Ended(NamedTuple):
    """How a command has ended."""

    code: int  # negative: the signal that killed it
    events: int  # that were counted; of a killed command those before
    seconds: float
    out: str
    err: str


class Warm:
    """The warm process."""

    def __init__(self, folder: Path):
        """`folder` is for the outputs of the commands."""
        self._folder = folder
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment["XLA_FLAGS"] = environment.get("XLA_FLAGS", "").replace("device_count=8", "device_count=1")
        # A kill can leave half of a compiled program in the cache, which others should not find.
        environment["JAX_COMPILATION_CACHE_DIR"] = str(folder / "xla")
        environment.pop("JAX_COMPILATION_CACHE_MAX_SIZE", None)
        command = [sys.executable, "-m", "support.warm"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def run(self, args: list, watched: Path, kill_at: int | None = None, kill_after: float | None = None) -> Ended:
        """Runs a command, `args[0]` of `COMMANDS`, or digest; `kill_at` is a number of an event, from 1."""
        job = {"args": [str(arg) for arg in args], "watched": str(watched), "kill_at": kill_at}
        job |= {"kill_after": kill_after, "folder": str(self._folder)}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        return Ended(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def leftovers(folder: Path) -> list[Path]:
    """What a finished command should not have left."""
    return [path for path in folder.rglob("*") if path.name.endswith(LEFT) or "orbax-checkpoint-tmp" in path.name]


def import_later() -> None:
    """Imports what commands import only when they need it: of the package, and of libraries, PyTorch among them."""
    from hostile.zygote import LATER as OTHERS  # not at the top: a benchmark's contender does not find it

    for name in LATER:
        importlib.import_module(name)
    for name in OTHERS:
        with contextlib.suppress(ModuleNotFoundError):  # of another version of a library
            importlib.import_module(name)


def serve() -> None:
    from simcse_jax.commands.command_line import run_command
    from simcse_jax.commands.verbs import make_main

    import_later()
    mains = {"digest": digest} | {name: make_main(name) for name in COMMANDS}
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        job = json.loads(line)
        start = time.monotonic()
        outputs = [Path(job["folder"]) / name for name in ("out", "err", "events")]
        child = os.fork()
        if not child:
            out, err, events = (os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for path in outputs)
            os.dup2(out, 1)
            os.dup2(err, 2)
            command, *args = job["args"]
            sys.argv = [f"simcse-jax {command}", *args]
            sys.orig_argv = ["python", "-m", "simcse_jax", command, *args]
            _watch(job["watched"], job["kill_at"], events)
            _end(run_command, mains[command])
        code = _wait(child, job["kill_after"] or TOO_LONG)
        out, err, events = (path.read_text(errors="replace") for path in outputs)
        print(json.dumps([code, int(events or 0), time.monotonic() - start, out, err]), file=answers, flush=True)


def digest() -> None:
    """Prints a fingerprint of the parameters of a run's two latest checkpoints and of its best one."""
    from simcse_jax.host.storage import sha256
    from simcse_jax.runs.checkpoints import Checkpoints
    from simcse_jax.runs.loading import load_workdir
    from simcse_jax.runs.state import model_spec, split_shapes
    from simcse_jax.runs.workdir import Workdir

    workdir = Path(sys.argv[1])
    shapes = split_shapes(load_workdir(workdir).config, model_spec(Workdir(workdir).read_run()["config"]))[0]
    with contextlib.closing(Checkpoints(workdir, read_only=True)) as checkpoints:
        # A run that is killed before it removes an older one keeps it until it saves again.
        steps = sorted(int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit())
        for step in sorted({*steps[-2:], checkpoints.best}):
            params = checkpoints.restore_params(step, shapes)
            print(step, sha256(*(np.asarray(params[name]) for name in sorted(params))))


def _end(run_command, main) -> None:
    code = 1
    try:
        run_command(main)
    except SystemExit as end:
        code = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _wait(child: int, seconds: float) -> int:
    """Kills the child after some seconds, and returns how it ended."""
    handle = os.pidfd_open(child)
    select.select([handle], [], [], seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _watch(watched: str, kill_at: int | None, counter: int) -> None:
    count = 0

    def happens() -> None:
        nonlocal count
        count += 1
        os.pwrite(counter, str(count).encode(), 0)
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def inside(path: object) -> bool:
        with contextlib.suppress(TypeError):
            return os.path.abspath(os.fsdecode(path)).startswith(watched)
        return False

    def hook(event: str, args: tuple) -> None:
        if event == "open":
            path, _, flags = args
            if flags & WRITES and inside(path):
                happens()
        elif event in CHANGES:
            relative = event in ("os.remove", "os.rmdir") and args[-1] != -1  # of shutil.rmtree
            if relative or isinstance(args[0], int) or inside(args[0]):
                happens()
        elif event == "ctypes.dlsym" and args[1] == "renameat2":
            happens()

    def fsync(file: object) -> None:
        happens()
        real(file)

    real, os.fsync = os.fsync, fsync
    sys.addaudithook(hook)


if __name__ == "__main__":
    serve()
