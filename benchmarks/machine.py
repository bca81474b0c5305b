"""The machine of a measurement: device, cores, versions, and the memory that a process took."""

import contextlib
import importlib.metadata
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "torch",
    "transformers",
    "sentence-transformers",
    "accelerate",
    "onnxruntime",
    "optimum-onnx",
    "faiss-cpu",
    "numpy",
)


def cpu() -> str:
    """The processor's name, if the system gives it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device() -> str:
    """The device of the library that this process has imported: a GPU's or TPU's name, or the processor's."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and jax.default_backend() != "cpu":
        return jax.devices()[0].device_kind
    if jax is None and torch is not None and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return cpu()


def versions() -> dict[str, str]:
    """Of Python and of those of `PACKAGES` that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def peak_memory_mib() -> float:
    """The most memory that this process has had so far.

    The system's own high-water mark where there is one: `ru_maxrss` starts a child with its parent's.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_device_memory_mib() -> float | None:
    """The same of a GPU or TPU; None on a CPU."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and jax.default_backend() != "cpu":
        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**20
    if jax is None and torch is not None and torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return None


def describe() -> dict[str, Any]:
    """All of it but memory, for a JSON file."""
    return {"cpu": cpu(), "cores": cores(), "system": f"{platform.system()} {platform.machine()}"}
