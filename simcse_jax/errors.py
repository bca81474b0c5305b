"""Errors that are the user's to mend: one line on standard error, exit code 2, no traceback."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The most similar of the known names."""
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


class UserError(Exception):
    """What is wrong, where (file, row or field) and what to do, in one line."""


def no_such(where: str, kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is none of the known ones; it names the nearest."""
    return UserError(f"{where}: no {kind} {name!r}; the nearest one is {nearest(name, known)}")


class Preempted(Exception):
    """The run was told to end, has saved itself, and the same command resumes it."""


def reason(error: Exception) -> str:
    """What another library says of a failure, as part of a line: its text without line breaks, cut short."""
    return " ".join(str(error).split())[:200] or type(error).__name__
