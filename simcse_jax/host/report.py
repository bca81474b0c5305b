"""The report of an unexpected error: a file that a user can send to the developers."""

import importlib.metadata
import os
import platform
import tempfile
import traceback

from simcse_jax.host.version import __version__

PACKAGES = ("jax", "jaxlib", "flax", "numpy", "tokenizers", "safetensors", "pyarrow", "orbax-checkpoint")


def describe(error: BaseException, command: str) -> str:
    """The command, the versions and the traceback."""
    lines = [
        f"command: {command}",
        f"simcse_jax {__version__}, Python {platform.python_version()}, {platform.platform()}",
        ", ".join(f"{package} {_version(package)}" for package in PACKAGES),
        "",
        *(part.rstrip("\n") for part in traceback.format_exception(error)),
    ]
    return "\n".join(lines) + "\n"


def write(text: str) -> str | None:
    """Writes a report into the temporary folder. Returns its name, None when it cannot be written."""
    try:
        number, name = tempfile.mkstemp(prefix="simcse_jax-report-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:  # a full disk, or no temporary folder: the caller prints the report
        return None
    return name


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the machine or a device has too little memory."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)[:1000]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
