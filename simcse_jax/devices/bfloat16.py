"""Whether this machine's CPU has instructions for bfloat16: without them, float32 is faster (docs/performance.md)."""

import functools
import re
from pathlib import Path

import jax

CPU_INFO = Path("/proc/cpuinfo")
INSTRUCTIONS = {"amx_bf16", "avx512_bf16", "bf16"}  # of Intel and AMD, and of Arm


@functools.cache
def slow_bfloat16() -> str:
    """A sentence that says so where JAX computes on a CPU that is known to have none; empty anywhere else."""
    if jax.default_backend() != "cpu":
        return ""
    try:
        lists = re.findall(r"^(?:flags|Features)\s*:(.*)$", CPU_INFO.read_text(), re.MULTILINE)
    except OSError:  # another system, which does not say
        return ""
    if not lists or INSTRUCTIONS & set(lists[0].split()):
        return ""
    return "bfloat16: this CPU has no instructions for it, so float32 is faster here"
