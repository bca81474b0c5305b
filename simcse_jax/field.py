"""One field of a run: its default, meaning and bounds. A bound has the words that errors and `--help` use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from simcse_jax.errors import KINDS, UserError, no_such


class Rule(NamedTuple):
    """A bound of a value."""

    words: str  # they complete "must be …"
    check: Callable[[str, Any], object]  # takes the field's name and its value; raises a UserError


def rule(words: str, holds: Callable[[Any], bool]) -> Rule:
    """The rule that `holds(value)`."""

    def check(field: str, value: Any) -> None:
        if not holds(value):
            raise UserError(f"{field}={value!r}: must be {words}")

    return Rule(words, check)


def list_of(words: str, read: Callable[[Any], object]) -> Rule:
    """The rule of a list of numbers, which `read` takes, or raises a ValueError.

    They are texts there, as on the command line and in `run.json`.
    """

    def is_read(parts: Sequence[str]) -> bool:
        try:
            read(parts)
        except ValueError:
            return False
        return not any("_" in part for part in parts)  # Python reads 1_5 as 15

    def check(field: str, value: Sequence[object]) -> None:
        if not all(isinstance(part, str) for part in value):
            raise UserError(f"{field}={value!r}: its numbers must be texts, as in {tuple(map(str, value))!r}")
        rule(words, is_read).check(field, value)

    return Rule(words, check)


def at_least(least: float, why: str = "") -> Rule:
    """At least `least`, and finite; `why` is the reason for the bound."""
    return rule(f"{least} or more{why and f' ({why})'}", lambda value: least <= value < inf)


def at_most(most: float) -> Rule:
    """At most `most`, and finite."""
    return rule(f"at most {most}", lambda value: -inf < value <= most)


def above(bound: float, why: str = "") -> Rule:
    """Greater than `bound`, and finite."""
    return rule(f"above {bound}{why and f' ({why})'}", lambda value: bound < value < inf)


def nonempty(words: str) -> Rule:
    """A text that is not empty."""
    return rule(words, bool)


def one_of(names: Iterable[str]) -> Rule:
    """One of several names."""
    choices = tuple(names)
    words = f"one of {', '.join(choices)}" if choices[2:] else " or ".join(choices)
    return rule(words, lambda value: value in choices)


def empty_or_one_of(names: Iterable[str]) -> Rule:
    """One of several names, or none of them."""
    choices = tuple(names)
    return rule(f"empty or one of {', '.join(choices)}", lambda value: value in ("", *choices))


def read_milestones(text: str) -> list[tuple[int, float]]:
    """Steps and factors, from `STEP:FACTOR,STEP:FACTOR,…`; none of an empty text.

    Raises:
      ValueError: when it has another form.
    """
    milestones = []
    for part in text.split(",") if text else ():
        step, _, factor = part.partition(":")
        milestones.append((int(step), float(factor)))
    return milestones


def milestones(largest: int) -> Rule:
    """Milestones with rising steps from 1 to `largest`, or none."""
    words = "empty, or STEP:FACTOR,STEP:FACTOR,… with rising steps from 1 and factors of 0 or more"

    def holds(text: str) -> bool:
        try:
            read = read_milestones(text)
        except ValueError:
            return False
        steps = [0, *(step for step, _ in read)]
        rising = all(before < after for before, after in pairwise(steps))
        return rising and steps[-1] <= largest and all(0 <= factor < inf for _, factor in read)

    return rule(words, holds)


def each_once(kind: str, names: Iterable[str]) -> Rule:
    """Any of several names, each at most once; the error has the nearest name."""
    choices = tuple(names)

    def check(field: str, value: Sequence[str]) -> None:
        for name in value:
            if name not in choices:
                raise no_such(field, kind, name, choices)
            if value.count(name) > 1:
                raise UserError(f"{field}: {name} is given twice; list each {kind} once, separated by commas")

    return Rule(f"any of {', '.join(choices)}", check)


BELOW_ONE = rule("at least 0 and below 1", lambda rate: 0 <= rate < 1)  # a rate


@dataclass(frozen=True)
class Field:
    """One field of a run. Its type is the type of its default."""

    default: Any
    meaning: str
    rules: tuple[Rule, ...] = ()
    of_step: bool = False  # an argument of the compiled step: runs that differ in it share a compilation
    only: str = ""  # it has an effect only with this: NAME, another field that is set, or NAME=VALUE; empty: always

    @property
    def kind(self) -> str:
        """The type and the bounds, in words: `A number; above 0`."""
        kind = "; ".join([KINDS[type(self.default)], *(rule.words for rule in self.rules)])
        return kind[0].upper() + kind[1:]

    def has_effect(self, config: Any) -> bool:
        """Whether it has an effect beside the other fields of `config`."""
        name, equals, value = self.only.partition("=")
        setting = reduce(getattr, name.split("."), config) if name else True
        return setting == value if equals else bool(setting)


def field(default: Any, meaning: str, *rules: Rule, only: str = "") -> Field:
    """A field that is fixed when the step is compiled, or that the step does not use."""
    return Field(default, meaning, rules, only=only)


def number(default: float | str | tuple[str, ...], meaning: str, *rules: Rule, only: str = "") -> Field:
    """A field that the compiled step takes as an argument, a number or several."""
    return Field(default, meaning, rules, of_step=True, only=only)


def weight(default: float = 0.0) -> Field:
    """The weight of an objective."""
    return number(default, "The weight of this term in the loss; 0.0 turns it off.", at_least(0))


def explain(choices: Mapping[str, str]) -> str:
    """The choices of a field, each with its meaning."""
    return "; ".join(f"{name}: {meaning}" for name, meaning in choices.items())


def reading(readings: Mapping[str, str]) -> Field:
    """Which of two formulas: what a paper prints, and what its authors' code computes."""
    return field("paper", f"Which of two formulas. {explain(readings)}.", one_of(readings))
