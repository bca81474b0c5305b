"""One field of a run: its default, meaning and bounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simcse_jax.config.rules import Rule, at_least, rule

BELOW_ONE = rule("at least 0 and below 1", lambda rate: 0 <= rate < 1)  # a rate


@dataclass(frozen=True)
class Field:
    """One field of a run. Its type is the type of its default."""

    default: Any
    meaning: str
    rules: tuple[Rule, ...] = ()
    of_step: bool = False  # an argument of the compiled step: runs that differ in it share a compilation


def field(default: Any, meaning: str, *rules: Rule) -> Field:
    """A field that is fixed when the step is compiled, or that the step does not use."""
    return Field(default, meaning, rules)


def number(default: float | str | tuple[str, ...], meaning: str, *rules: Rule) -> Field:
    """A field that the compiled step takes as an argument, a number or several."""
    return Field(default, meaning, rules, of_step=True)


def weight(default: float = 0.0) -> Field:
    """The weight of an objective."""
    return number(default, "The weight of this term in the loss; 0.0 turns it off.", at_least(0))


def explain(choices: Mapping[str, str]) -> str:
    """The choices of a field, each with its meaning."""
    return "; ".join(f"{name}: {meaning}" for name, meaning in choices.items())
