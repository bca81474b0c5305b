"""Config files: their variants, as in `unsup_bert:large`, and a line about each file of a folder."""

import importlib.util
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from simcse_jax.config.recipes import let_import
from simcse_jax.errors import UserError, reason


class NoSuchVariant(UserError):
    """A config has no variant of this name; `known` lists those that it has."""

    def __init__(self, variant: str, known: Iterable[str]):
        self.known = tuple(known)
        super().__init__(f"no variant {variant!r} of this config; it has {', '.join(self.known)}")


def choose_variant(variant: str, variants: Mapping[str, Any]) -> Any:
    """The entry of `variants` with this name, the `large` of `--config unsup_bert:large`.

    Raises:
      NoSuchVariant: there is none; the message lists the names.
    """
    if variant not in variants:
        raise NoSuchVariant(variant, variants)
    return variants[variant]


def load_file(file: str | Path) -> ModuleType:
    """Runs a config file, a Python program. Raises whatever goes wrong in it."""
    let_import()
    spec = importlib.util.spec_from_file_location("config_file", file)
    assert spec is not None and spec.loader is not None, f"{file} must end in .py"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def variants_of(module: ModuleType) -> tuple[str, ...]:
    """The variants of a config file, the default one first; empty if it has none."""
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
    """The config files of a folder, sorted by name. For one that cannot be loaded, `about` says why."""
    recipes = []
    for file in sorted(folder.glob("*.py")):
        try:
            module = load_file(file)
            about = (module.__doc__ or "").strip().partition("\n")[0]
            recipes.append(Recipe(file, about, variants_of(module)))
        except (Exception, SystemExit) as error:  # the file is a program: anything can go wrong in it
            recipes.append(Recipe(file, f"cannot be loaded: {reason(error)}"))
    return recipes
