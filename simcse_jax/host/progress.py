"""The progress of long work, on standard error: a bar on a terminal, elsewhere a line every half minute.

Work that takes less than `DELAY` seconds shows nothing.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, TextIO

from tqdm import tqdm

DELAY = 0.5  # seconds before a bar appears
LINE_SECONDS = 30  # between two lines where there is no terminal


class Clock:
    """When to write the next line."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether `LINE_SECONDS` have passed since the last line, or since the start; the next line counts from now."""
        now = time.monotonic()
        if now - self._last < LINE_SECONDS:
            return False
        self._last = now
        return True


class _Work(NamedTuple):
    title: str
    clock: Clock


_work: ContextVar[_Work | None] = ContextVar("work", default=None)


@contextlib.contextmanager
def doing(title: str = "") -> Iterator[None]:
    """Titles the progress within the block, such as with a task or a model; the innermost title counts.

    The bars of a block share one clock, so that many short ones print lines too.
    """
    outer = _work.get()
    token = _work.set(_Work(title, outer.clock if outer else Clock()))
    try:
        yield
    finally:
        _work.reset(token)


def write(text: str, stream: TextIO | None = None) -> None:
    """Prints a line to a stream, or else to standard output, above the bar if there is one."""
    stream = stream or sys.stdout
    tqdm.write(text, stream)
    stream.flush()


@contextlib.contextmanager
def shown_meanwhile(text: str, shown: bool = True) -> Iterator[None]:
    """Shows a text until the block has ended, where standard error can show a bar; `shown` is that of `Progress`."""
    shown = shown and on_terminal()
    if shown:
        print(text, end="\r", file=sys.stderr, flush=True)
    yield
    if shown:
        print(" " * len(text), end="\r", file=sys.stderr, flush=True)


def on_terminal() -> bool:
    """Whether standard error can show a bar: it is a terminal, or a notebook's cell."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")


class Progress:
    """How much of some work is done. Use it in a `with` block, or close it.

    A bar within another one vanishes when it is closed; the outermost one stays.
    """

    def __init__(self, total: int, unit: str = "sentences", *, done: int = 0, shown: bool = True):
        """Starts at `done` of `total`.

        Args:
          done: how many an earlier call did.
          shown: False shows nothing, as in all processes but the first.
        """
        work = _work.get() or _Work("", Clock())
        self._title, self._clock = work
        self._shown, self._bar_shown = shown, shown and on_terminal()
        looks: dict[str, Any] = {"leave": None, "dynamic_ncols": True, "miniters": 1, "delay": DELAY}
        named = {"unit": f" {unit}", "desc": self._title or None}
        self._bar = tqdm(total=total, initial=done, disable=not self._bar_shown, **named, **looks)
        self._total, self._unit, self._first, self._done = total, unit, done, done
        self._start = time.monotonic()

    def advance(self, count: int = 1, note: Callable[[], str] | None = None) -> None:
        """Counts what was done since the last call.

        `note`: makes a text that is shown after the numbers; called only when something is about to be shown.
        """
        self._done += count
        if self._bar_shown:
            if note and time.time() - self._bar.last_print_t >= self._bar.mininterval:
                self._bar.set_postfix_str(note(), refresh=False)
            self._bar.update(count)
        elif self._shown and self._clock.is_due():
            with contextlib.suppress(OSError):  # a full disk under a log ends no work
                print(self._line(note() if note else ""), file=sys.stderr, flush=True)

    def skip(self, seconds: float) -> None:
        """Excludes seconds that have just passed from the rate and the time left."""
        self._start += seconds
        if self._bar_shown:
            self._bar.start_t += seconds
            self._bar.last_print_t += seconds

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _line(self, note: str) -> str:
        rate = (self._done - self._first) / max(time.monotonic() - self._start, 1e-9)
        remaining = f", {tqdm.format_interval((self._total - self._done) / rate)} left" if rate else ""
        counts = f"{self._done:,} of {self._total:,} {self._unit}, {rate:.3g} a second{remaining}"
        return (f"{self._title}: " if self._title else "") + counts + (f", {note}" if note else "")
