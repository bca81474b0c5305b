"""JAX's persistent compilation cache: what one process has compiled, the next one reads."""

import os
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache


def keep_compilations() -> None:
    """Turns the cache on, for programs of any size: a start compiles some dozens of small ones too.

    It lies in `~/.cache/simcse_jax/xla` (`XDG_CACHE_HOME` is heeded), or where `JAX_COMPILATION_CACHE_DIR` says. There
    is none where the home folder is not writable. Several processes have one only where `JAX_COMPILATION_CACHE_DIR`
    says so: the first one alone writes it, and the others find nothing where hosts share no folder. A
    `jax_compilation_cache_dir` that is set already stays.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        if jax.config.jax_compilation_cache_dir or jax.distributed.is_initialized():
            return
        try:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simcse_jax" / "xla"
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                return
        except (OSError, RuntimeError):  # there is no home
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
        compilation_cache.reset_cache()  # a program that has compiled something already would go on without
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
