"""Config files: their variants, as in `configs/unsup_bert.py:large`, and a line about each of a folder."""

import importlib.util
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, reason


class NoSuchVariant(UserError):
    """A config's argument names none of its variants; `known` has those that there are."""

    def __init__(self, variant: str, known: Iterable[str]):
        self.known = tuple(known)
        super().__init__(f"no variant {variant!r} of this config; it has {', '.join(self.known)}")


def choose_variant(variant: str, variants: Mapping[str, Any]) -> Any:
    """The entry of `variants` that a config's argument (`configs/unsup_bert.py:large`) names.

    Raises:
      NoSuchVariant: naming the ones there are.
    """
    if variant not in variants:
        raise NoSuchVariant(variant, variants)
    return variants[variant]


def load_file(file: str | Path) -> ModuleType:
    """Runs a config file, a Python program. Raises whatever goes wrong in it."""
    spec = importlib.util.spec_from_file_location("config_file", file)
    assert spec is not None and spec.loader is not None, f"{file} must end in .py"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def variants_of(module: ModuleType) -> tuple[str, ...]:
    """The variants of a config file, the default one first; empty where it has one form alone."""
    parameters = inspect.signature(module.get_config).parameters
    if not parameters:
        return ()
    default = next(iter(parameters.values())).default
    try:
        module.get_config("?")
    except NoSuchVariant as error:
        return (default, *(name for name in error.known if name != default))
    return ()


class Recipe(NamedTuple):
    """A config file, as `--help` lists it."""

    file: Path
    about: str  # the first line of its docstring
    variants: tuple[str, ...] = ()  # the default one first


def list_recipes(folder: Path) -> list[Recipe]:
    """The config files of a folder by name. One that cannot be loaded says why in place of what it is about."""
    recipes = []
    for file in sorted(folder.glob("*.py")):
        try:
            module = load_file(file)
            about = (module.__doc__ or "").strip().partition("\n")[0]
            recipes.append(Recipe(file, about, variants_of(module)))
        except Exception as error:  # the file is a program: anything can go wrong in it
            recipes.append(Recipe(file, f"cannot be loaded: {reason(error)}"))
    return recipes
