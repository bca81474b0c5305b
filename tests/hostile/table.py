"""The whole table of cases, its counts, and the sample of it that `make test` runs."""

import hashlib
from collections import Counter

from hostile import (
    cases_adapters,
    cases_blocks,
    cases_building,
    cases_config,
    cases_corpora,
    cases_data,
    cases_folders,
    cases_graded,
    cases_json,
    cases_lance,
    cases_macos,
    cases_mining,
    cases_options,
    cases_outputs,
    cases_retrieval,
    cases_sources,
    cases_tables,
    cases_tokenizer,
    cases_weights,
    cases_words,
)
from hostile.case import REFUSED, Case

FILES = (
    cases_json,
    cases_weights,
    cases_tokenizer,
    cases_folders,
    cases_data,
    cases_config,
    cases_options,
    cases_outputs,
    cases_building,
    cases_words,
    cases_corpora,
    cases_adapters,
    cases_lance,
    cases_macos,
    cases_retrieval,
    cases_sources,
    cases_blocks,
    cases_mining,
    cases_graded,
    cases_tables,
)
PER_KIND = 3  # of the sample


def all_cases() -> list[Case]:
    """Every case, in the same order in every process."""
    return [case for file in FILES for case in file.cases()]


def counts(cases: list[Case]) -> dict[str, int]:
    """The number of cases of each kind."""
    return dict(Counter(case.kind for case in cases))


def counts_table(cases: list[Case]) -> str:
    """The rows of the table in SECURITY.md."""
    rows = [f"| {kind} | {count:,} |" for kind, count in counts(cases).items()]
    return "\n".join([*rows, f"| all | {len(cases):,} |"])


def sample(cases: list[Case]) -> list[Case]:
    """A few refusals of each kind, each of another command: they end before anything is computed.

    The choice depends on the names of the cases alone.
    """
    found: dict[str, list[Case]] = {}
    refused = {case.kind for case in cases if case.end == REFUSED}
    for case in sorted(cases, key=lambda case: hashlib.sha256(case.name.encode("utf-8", "replace")).hexdigest()):
        chosen = found.setdefault(case.kind, [])
        if case.end != REFUSED and case.kind in refused:  # other kinds have no case that must be refused
            continue
        if len(chosen) < PER_KIND and case.command not in {other.command for other in chosen}:
            chosen.append(case)
    return [case for chosen in found.values() for case in chosen]
