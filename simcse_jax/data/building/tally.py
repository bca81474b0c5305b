"""What was read, used and left out, and why; and the text of a sentence."""

import sys
from collections import Counter

from simcse_jax.data.rows import MISSING, is_text
from simcse_jax.errors import UserError, broken
from simcse_jax.host.progress import Clock, write

LOOK = 100  # units between two looks at the clock
BLANK = "with a blank sentence"


class Tally:
    """Counts of what a builder reads: every unit is used or dropped for a reason.

    Attributes:
      unit: what is counted: pairs, captions, pages.
      read: how many there were.
      dropped: how many were left out, by reason.
      notes: further lines for the user.
    """

    def __init__(self, unit: str):
        self.unit = unit
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.notes: list[str] = []
        self._clock = Clock()

    def see(self) -> None:
        """Counts a unit as read; long work says every half minute, on standard error, how many there were."""
        self.read += 1
        if self.read % LOOK == 0 and self._clock.is_due():
            write(f"{self.read:,} {self.unit} read", sys.stderr)

    def drop(self, reason: str, count: int = 1) -> None:
        """Counts units that are left out."""
        self.dropped[reason] += count

    @property
    def used(self) -> int:
        """The number of units that were not dropped."""
        return self.read - self.dropped.total()

    def lines(self) -> list[str]:
        """The counts, a line each, those of reasons from the largest down."""
        found = [f"{self.read:,} {self.unit} read, {self.used:,} used"]
        found += [f"  {count:,} dropped: {reason}" for reason, count in self.dropped.most_common() if count]
        return [*found, *self.notes]


def sentence(value: object, where: str) -> str:
    """The text of a field, without white space around it and in one line; empty for None.

    Args:
      value: of the field.
      where: the file, row and field, for the message.
    """
    if value is MISSING:
        raise UserError(f"{where} is missing")
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where} holds {value!r:.60}, not text")
    text = " ".join(filter(None, map(str.strip, (value or "").splitlines())))
    return checked(text, where)


def checked(text: str, where: str) -> str:
    """The text, unless it has what no file of lines can hold."""
    if "\0" in text:
        raise UserError(f"{where} holds a zero byte; remove it")
    if not is_text(text):
        raise UserError(f"{where} {broken(text)}")
    return text
