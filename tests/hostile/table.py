"""The whole table of cases, its counts, the draw of it that is run, and the sample that `make test` runs."""

import functools
import hashlib
import importlib
import os
import random
import subprocess
from collections import Counter

from hostile.case import REFUSED, Case
from hostile.seeds import SIMPLE
from support import ROOT

FILES = "json weights tokenizer folders data config options outputs words prepared adapters lance macos retrieval"
FILES += " sources mining graded"
DRAWN, LEAST = 600, 5  # cases of a draw; of each kind


@functools.cache
def all_cases() -> list[Case]:
    """Every case, in the same order in every process."""
    return [case for name in FILES.split() for case in importlib.import_module(f"hostile.cases_{name}").cases()]


@functools.cache
def seed() -> str:
    """Of all that is drawn: SEED in the environment, or this commit."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return os.environ.get("SEED") or commit or "0"


def chosen() -> list[Case]:
    """What is run: a draw, or with HOSTILE=all in the environment every case."""
    return all_cases() if os.environ.get("HOSTILE") == "all" else draw(all_cases(), seed())


def draw(cases: list[Case], seed: str, count: int = DRAWN) -> list[Case]:
    """A few cases of each kind, and others at random up to `count`."""
    at_random, names = random.Random(seed), set[str]()
    for kind in counts(cases):
        of_kind = [case.name for case in cases if case.kind == kind]
        names |= set(at_random.sample(of_kind, min(LEAST, len(of_kind))))
    names |= set(at_random.sample([case.name for case in cases if case.name not in names], count - len(names)))
    return [case for case in cases if case.name in names]


def counts(cases: list[Case]) -> dict[str, int]:
    """The number of cases of each kind."""
    return dict(Counter(case.kind for case in cases))


def counts_table(cases: list[Case]) -> str:
    """The rows of the table in SECURITY.md."""
    rows = [f"| {kind} | {count:,} |" for kind, count in counts(cases).items()]
    return "\n".join([*rows, f"| all | {len(cases):,} |"])


def sample(cases: list[Case]) -> list[Case]:
    """A refusal of each kind that has one, if possible of inputs that need no command: it ends before any work."""
    cheap = SIMPLE.keys() | {"workdir", "exported", "foreign"}  # which tests share

    def order(case: Case) -> tuple[bool, str]:
        name = case.name.encode("utf-8", "replace")
        return not cheap >= set(case.inputs), hashlib.sha256(name).hexdigest()

    refused = [case for case in cases if case.end == REFUSED and case.command != "__main__" and not case.options]
    return list({case.kind: case for case in sorted(refused, key=order, reverse=True)}.values())  # the first of a kind
