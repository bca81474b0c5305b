"""A command's streams: standard input and arguments, in UTF-8; standard output and error.

Any text can be printed, and a stream that fails is reported in one line.
"""

import io
import itertools
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from simcse_jax.errors import UserError, not_utf8, system_message

BOLD, RED, GREEN, YELLOW = 1, 31, 32, 33  # as terminals number them


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


def read_typed_lines(prompt: str) -> Iterator[str]:
    """The lines of standard input, without their ends, until it ends or is interrupted; drops a byte-order mark.

    `prompt` is printed on standard error before each line that is read_typed_lines on a keyboard.
    """
    if sys.stdin is None:  # it was closed
        return
    for number in itertools.count(1):
        if sys.stdin.isatty():
            print(prompt, end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.buffer.readline()
        except KeyboardInterrupt:
            return
        if not line:
            return
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"line {number} of standard input {not_utf8(error)}") from None


def argument(text: str) -> str:
    """An option that is text; a file's name may have any bytes.

    Raises:
      ValueError: for bytes that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) - 0xDC00  # Python keeps a byte that is not UTF-8 as such a number
        cure = "type it in UTF-8, or save the script that has it as UTF-8"
        raise ValueError(f"{text!r:.60} is not UTF-8 (byte 0x{byte:02x}); {cure}") from None
    return text


def paint(text: str, style: int, stream: TextIO | None) -> str:
    """A text in a style where the stream is a terminal that shows it, unless NO_COLOR is set (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or stream is None or not stream.isatty() else f"\033[{style}m{text}\033[0m"


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
        raise UserError(f"standard output: {system_message(error)}") from None


def _discard(stream: TextIO) -> None:
    """Redirects a stream to the null device."""
    if isinstance(stream, io.TextIOWrapper):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
