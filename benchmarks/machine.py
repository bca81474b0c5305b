"""The machine of a measurement: device, cores, versions, and the memory that a process took."""

import contextlib
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
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
    "openvino",
    "optimum-intel",
    "representax",
    "equinox",
    "faiss-cpu",
    "numpy",
)


def cpu() -> str:
    """The processor's name, family and model, if the system gives them: a virtual machine's name alone says little."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    about = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "model name" not in about:
        return platform.processor() or platform.machine()
    kind = f" (family {about['cpu family']}, model {about['model']})" if {"cpu family", "model"} <= about.keys() else ""
    return about["model name"] + kind


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


def name(about: Mapping[str, Any], accelerators: Iterable[str] = ()) -> str:
    """The machine of `describe` in a line, with the accelerators that contenders ran on."""
    others = sorted(set(accelerators) - {about["cpu"]})
    return ", ".join([*others, about["cpu"], f"{about['cores']} core{'s' if about['cores'] > 1 else ''}"])


def busy(seconds: float = 1.0) -> float | None:
    """The share of the processors' time that is used while this process sleeps; None where the system does not tell."""
    try:
        before = _times()
        time.sleep(seconds)
        passed = [now - then for then, now in zip(before, _times(), strict=True)]
    except OSError:
        return None
    idle = passed[3] + passed[4]  # and waiting for a disk
    return round(1 - idle / sum(passed), 3) if sum(passed) else None


def _times() -> list[int]:
    """What Linux counts of all processors: user, nice, system, idle, waiting for a disk, interrupts, stolen."""
    return [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def commit() -> str:
    """The variable COMMIT, or the checkout's, with + if files were changed since; "unknown" without git."""
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    try:
        told = ["git", "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+"]
        return subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
