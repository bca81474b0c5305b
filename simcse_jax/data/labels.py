"""Labels of pairs: entailment, neutral and contradiction; and any classes of sentences."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any, Self

from simcse_jax.choices import LABELS
from simcse_jax.errors import UserError

SHORT = {label[0]: label for label in LABELS}  # as ANLI writes them
# The annotators disagreed: SNLI writes -, Hugging Face -1; or not which of the two other labels.
UNLABELLED = ("", "-", "-1", "na", "nan", "n/a", "not_entailment", "non-entailment", "not entailment")


class NamedLabel(int):
    """A label's number in a dataset that names its labels, in an order of its own."""

    name: str

    def __new__(cls, number: int, name: str) -> Self:
        """The number, with its name."""
        label = super().__new__(cls, number)
        label.name = name
        return label


def with_names(names: Sequence[str] | None) -> Callable[[Any], Any]:
    """A function that adds names to numbers; leaves other values, and numbers without a name (−1), unchanged.

    Three names that are numbers or initials stand for the usual labels. Other numbers as names mean nothing.
    """
    if names and set(names) == SHORT.keys():
        names = [SHORT[name] for name in names]
    elif names and len(names) != len(LABELS):
        names = [f"class {name}" if name.isdecimal() else name for name in names]

    def named(value: Any) -> Any:
        is_number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return NamedLabel(int(value), names[value]) if names and is_number and 0 <= value < len(names) else value

    return named


def parse_label(value: object, where: str) -> int | None:
    """A label's index in `LABELS`; None for a pair without a label (-1, "-", empty, None, NaN or "not entailment").

    Args:
      value: a name in any case, or a number, perhaps as text, also 1.0, as pandas writes 1 in a column with gaps. For a
        `NamedLabel`, its name decides.
    """
    if isinstance(value, NamedLabel):
        value = value.name
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        value = f"{value:g}"
    text = value.strip().lower().removesuffix(".0") if isinstance(value, str) else "" if value is None else repr(value)
    if text in UNLABELLED:
        return None
    for number, name in enumerate(LABELS):
        if text in (name, str(number)):
            return number
    raise UserError(
        f"{where} holds {value!r:.60}, which is not a label; write {', '.join(LABELS)}, 0, 1, 2, or nothing"
    )


class Classes(dict[str, int]):
    """The names of classes, with their numbers in the order of their first rows."""

    def read(self, value: object, where: str = "") -> int | None:
        """The number of a class by its name or number; None for one that is missing (empty, None, NaN)."""
        name = name_of_class(value)
        return self.setdefault(name, len(self)) if name else None


def name_of_class(value: object) -> str:
    """The name of a class, 1 also for 1.0, as pandas writes it, and True; "" for one that is missing."""
    if isinstance(value, NamedLabel):
        return value.name
    if value is None or value != value:
        return ""
    return str(+value if isinstance(value, numbers.Real) else value).strip().removesuffix(".0")
