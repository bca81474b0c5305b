"""JAX's backend: started, or refused in one line.

Its persistent compilation cache lets a process read the programs that an earlier one compiled.
"""

import os
from pathlib import Path
from typing import Any, cast

import jax
from jax._src import xla_bridge  # JAX has no public way to ask whether a backend has started
from jax.experimental.compilation_cache import compilation_cache

from simcse_jax.errors import UserError, reason

_forked_from: list[int] = []  # the process that had started JAX before it was forked into this one


def _note_fork() -> None:
    if xla_bridge.backends_are_initialized():
        _forked_from.append(os.getppid())


os.register_at_fork(after_in_child=_note_fork)


def check_fork() -> None:
    """Refuses a process in which JAX would hang: a fork has none of the threads that JAX had started."""
    if _forked_from:
        raise UserError(
            f"this process was forked from process {_forked_from[0]} after JAX had started there, as it does when a "
            'model first encodes; start processes with multiprocessing.get_context("spawn"), or fork before that'
        )


def start() -> None:
    """Starts the backend, if it has not been started, before anything else uses a device."""
    check_fork()
    try:
        jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # the latter is all that JAX says about cuda
        asked = cast(Any, jax.config).jax_platforms or ""  # a field made at run time
        cure = "install JAX for it; cpu is always there, and without JAX_PLATFORMS, JAX takes the best that there is"
        raise UserError(f"JAX_PLATFORMS={asked}: JAX cannot start it ({reason(error):.300}); {cure}") from None


def keep_compilations() -> None:
    """Turns the cache on, for programs of any size, since a start also compiles some dozens of small ones.

    Its folder is `~/.cache/simcse_jax/xla` (under `XDG_CACHE_HOME` if that is set), or `JAX_COMPILATION_CACHE_DIR`.
    There is no cache if the home folder is not writable. Several processes use one only with
    `JAX_COMPILATION_CACHE_DIR`, since only the first one writes it, and hosts without a shared folder would find
    nothing. A `jax_compilation_cache_dir` that is already set stays.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        stated = cast(Any, jax.config).jax_compilation_cache_dir  # a field made at run time
        if stated or jax.distributed.is_initialized():
            return
        try:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simcse_jax" / "xla"
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                return
        except (OSError, RuntimeError):  # no home folder
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
        compilation_cache.reset_cache()  # otherwise a process that has compiled something would not use it
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
