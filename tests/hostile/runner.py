"""Runs cases in one zygote, and judges them."""

import os
import shutil
from pathlib import Path

from hostile.case import COMPARED, DONE, Case, Seeds, contents
from hostile.verdict import listing, problem
from hostile.zygote import Done, Zygote
from support import xla_flags

PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def environment() -> dict[str, str]:
    """Of the zygote: one device, no hub, no network through proxies, programs compiled once for all.

    Python writes no bytecode of a config next to it, or every case that is refused after reading one leaves a file.
    """
    kept = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES}
    kept.pop("PYTEST_CURRENT_TEST", None)
    kept |= {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "XLA_FLAGS": xla_flags()}
    return kept | {"PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1"}


class Runner:
    """Runs cases, each in a folder of its own below `base`."""

    def __init__(self, zygote: Zygote, seeds: Seeds, base: Path):
        self._zygote, self._seeds, self._base = zygote, seeds, base
        self._references: dict[tuple[object, ...], object] = {}
        self._count = 0
        self.last: Done | None = None

    def run(self, case: Case) -> str:
        """What went wrong; empty if nothing did. The folder of a case that went well is removed."""
        reference = self._reference(case) if case.end in COMPARED and case.output else None
        folder = self._folder(case)
        before = listing(folder)
        self.last = self._zygote.run(case.command, case.arguments, folder, **case.options)
        found = problem(case, self.last, folder, before, reference)
        if not found:
            self._remove(folder)
        return found

    def _folder(self, case: Case) -> Path:
        self._count += 1
        folder = self._base / f"{self._count:05}"
        case.prepare(folder, self._seeds)
        return folder

    def _remove(self, folder: Path) -> None:
        for path in (folder, folder.with_name(folder.name + ".own")):
            shutil.rmtree(path, ignore_errors=True)

    def _reference(self, case: Case) -> object:
        key = (case.command, *(case.like or case.arguments), *case.inputs)
        if key not in self._references:
            line = case.like or case.arguments
            clean = Case("reference", case.command, "none", line, case.inputs, end=DONE, output=case.output)
            folder = self._folder(clean)
            done = self._zygote.run(clean.command, clean.arguments, folder)
            assert done.code == 0, f"the reference of {case.name}: {done}"
            self._references[key] = contents(folder / case.output)
            self._remove(folder)
        return self._references[key]
