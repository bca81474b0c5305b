"""Standard output and standard error: any text can be printed, and a stream that takes no more ends in a line."""

import io
import os
import sys
from typing import TextIO

from simcse_jax.errors import UserError, why


def prepare() -> None:
    """Characters outside a stream's encoding, and names that are not UTF-8, are printed as escapes.

    A stream that was closed (`2>&-`) becomes the null device: otherwise the next file that is opened gets its number,
    and what a library prints goes into that file.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
    if sys.stderr is None:  # print(file=None) would print on standard output
        sys.stderr = open(os.devnull, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """Prints on standard error, if it can be written: there is no other place to report that it cannot."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def flush() -> None:
    """Writes what standard output still holds.

    Raises:
      UserError: when it cannot be written, as on a full disk. The rest is discarded, so that no later flush fails.
      BrokenPipeError: when its reader closed it; likewise.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        raise UserError(f"standard output: {why(error)}") from None


def _discard(stream: TextIO) -> None:
    """Lets a stream end in the null device."""
    if isinstance(stream, io.TextIOWrapper):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
