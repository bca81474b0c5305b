"""Memory in pages of 2 MiB, with which a step of training on a CPU is faster (docs/background/performance.md)."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE, SETTING = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"
LEAST = (2, 35)  # the first glibc that knows the setting
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def use(pages: Path = PAGES) -> None:
    """Restarts this process with the same arguments if that gives it huge pages; otherwise returns.

    glibc reads its settings when a process starts, so one that runs cannot change them. The new process is the same one
    to others: it has its number, its files and its place. A user's own `GLIBC_TUNABLES`, even an empty one, is kept.
    """
    if sys.executable and would_help(os.environ, pages):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, VARIABLE: SETTING})


def would_help(environment: Mapping[str, str], pages: Path = PAGES) -> bool:
    """Whether Linux gives huge pages to those who ask, glibc can ask, and nobody has said what it should do."""
    try:
        library, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        can_ask = library == "glibc" and tuple(map(int, version.split("."))) >= LEAST
        return can_ask and VARIABLE not in environment and "[madvise]" in pages.read_text(encoding="utf-8")
    except (AttributeError, OSError, ValueError):  # another system
        return False
