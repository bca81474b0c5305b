"""Errors that are the user's to mend: one line on standard error, exit code 2, no traceback."""

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import NoReturn

PREEMPTED = 75  # EX_TEMPFAIL of sysexits.h: try again


class UserError(Exception):
    """What is wrong, where (file, row or field) and what to do, in one line."""


class Preempted(Exception):
    """The run was told to end, has saved itself, and the same command resumes it."""


def reason(error: Exception) -> str:
    """What another library says of a failure, as part of a line: its text without line breaks, cut short."""
    return " ".join(str(error).split())[:200] or type(error).__name__


class Parser(argparse.ArgumentParser):
    """argparse, whose complaints are one line too."""

    def error(self, message: str) -> NoReturn:
        """Raises a `UserError` instead of printing the usage and leaving."""
        raise UserError(f"{message} (see {self.prog} --help)")


@contextlib.contextmanager
def warnings_in_a_line() -> Iterator[None]:
    """Warnings for the user (`UserWarning`) as a line each, on standard error, without the place in the code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr, flush=True)


def run_command(main: Callable[[], None]) -> NoReturn:
    """Runs a command's `main` and ends the process.

    Exit code 0 when it is done, 2 for a mistake of the user's (one line), 75 when it was pre-empted and has saved
    itself (start it again), 130 when interrupted.
    """
    try:
        main()
    except UserError as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    except Preempted as stop:
        print(stop, file=sys.stderr)
        sys.exit(PREEMPTED)
    except BrokenPipeError:  # who reads has had enough, as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)
