"""JAX's persistent compilation cache: programs that one process compiled are read by the next."""

import os
from pathlib import Path
from typing import Any, cast

import jax
from jax.experimental.compilation_cache import compilation_cache


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
