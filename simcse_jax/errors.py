"""Errors that the user can fix: one line on standard error, exit code 2, no traceback."""

import contextlib
import difflib
import importlib.util
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

in_command: ContextVar[bool] = ContextVar("in_command", default=False)  # whether the process is a command's own


def near(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The known names that could be meant, the most similar one first, at most three; often none."""
    return difflib.get_close_matches(name, list(names), n=3, cutoff=cutoff)


def hint(name: str, names: Iterable[str], before: str = "") -> str:
    """The end of a message about an unknown name: the nearest known one after `before`; empty if none is near."""
    return f"; the nearest one is {before}{close[0]}" if (close := near(name, names)) else ""


KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list, with commas"}


def right_value(default: Any) -> str:
    """What a value must be that has the type of `default`, for messages: `a whole number, e.g. 64`."""
    kind = KINDS.get(type(default), type(default).__name__)
    return kind if isinstance(default, bool) or default in ("", ()) else f"{kind}, e.g. {show(default)}"


def show(value: Any) -> str:
    """A value of a field as the command line has it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class UserError(Exception):
    """The mistake, its place (file, row or field) and the remedy, in one line.

    Any function that reads files, names or options may raise it; `Raises:` names it only where that is not plain.
    """

    def __init__(self, message: str = "", listed: Iterable[str] = ()):
        """The line; `listed` are details of it, of which each is printed on a line of its own below."""
        self.message, self.listed = message, tuple(listed)
        super().__init__("\n  ".join([message, *self.listed]))


@contextlib.contextmanager
def about(where: str) -> Iterator[None]:
    """Puts what the error of a block is about before its message."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def no_such(where: str, kind: str, name: str, names: Iterable[str]) -> UserError:
    """The error for an unknown name; it gives the nearest known one, or all of them if none is near."""
    names = list(names)
    return UserError(f"{where}: no {kind} {name!r}{hint(name, names) or '; there are ' + ', '.join(names)}")


class Preempted(Exception):
    """The run had to end and has saved its state; the same command resumes it."""


def reason(error: BaseException) -> str:
    """Another library's error message as part of a line: without line breaks, cut short."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def option(name: str, value: object) -> str:
    """An argument with its value as its reader writes it: `--base-model a/b` for a command, `base_model=a/b` if not."""
    return f"--{name.replace('_', '-')} {value}" if in_command.get() else f"{name}={value}"


def broken(text: str) -> str:
    """The message for a text that cannot be written, since it has half of a surrogate pair."""
    half = next(character for character in text if "\ud800" <= character <= "\udfff")
    return f"holds a broken character (U+{ord(half):04X} alone); remove or replace it"


def not_utf8(error: UnicodeDecodeError, others_are: bool = False) -> str:
    """The message for a line that is not UTF-8, with the remedy.

    WINDOWS-1252 has all characters of Latin-1. What it would make of the line is quoted, since it would destroy text in
    other encodings.

    Args:
      others_are: whether other lines are UTF-8, which a conversion would destroy.
    """
    line, place = error.object, error.start
    text = line.decode("cp1252", "replace")[max(place - 20, 0) : place + 20].strip()
    cure = f"if it should read {text!r}, convert it by `iconv -f WINDOWS-1252 -t UTF-8`, else from its own encoding"
    cure = "other lines are: correct this one, and do not convert the file" if others_are else cure
    return f"is not UTF-8 (byte 0x{line[place]:02x}); {cure}"


def system_message(error: BaseException) -> str:
    """The system's words for an error of a file, or the message of a store's client or another library."""
    return getattr(error, "strerror", None) or reason(error)


def installed(module: str) -> bool:
    """Whether a module can be imported, without importing it; a folder that is no package does not count."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # the package that it would be in
        return False
    return spec is not None and spec.origin is not None


def require(extra: str, *modules: str, where: str = "") -> None:
    """Checks, without importing them, that modules are installed which come with an extra of the package.

    Args:
      extra: its name.
      modules: by the names that one imports.
      where: what needs them, such as a field, if that is not plain.

    Raises:
      UserError: naming those that are missing and the command that installs them.
    """
    missing = [module for module in modules if not installed(module)]
    if missing:
        place = f"{where}: " if where else ""
        raise UserError(f'{place}not installed: {", ".join(missing)}; run: pip install "simcse_jax[{extra}]"')
