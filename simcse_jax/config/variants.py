"""Config files: their variants, as in `unsup_bert:large`, and a line about each file of a folder."""

import contextlib
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from simcse_jax.config.recipes import find, let_import
from simcse_jax.errors import UserError, reason


class NoSuchVariant(UserError):
    """A config has no variant of this name; `known` lists those that it has."""

    def __init__(self, variant: str, known: Iterable[str]):
        self.known = tuple(known)
        super().__init__(f"no variant {variant!r} of this config; it has {', '.join(self.known)}")


def choose_variant(variant: str, variants: Mapping[str, Any]) -> Any:
    """The entry of `variants` with this name, the `large` of `--config unsup_bert:large`."""
    if variant not in variants:
        raise NoSuchVariant(variant, variants)
    return variants[variant]


def load_file(file: str | Path) -> ModuleType:
    """Runs a config file, a Python program. Raises whatever goes wrong in it."""
    let_import()
    # By its loader: the name need not end in .py.
    loader = importlib.machinery.SourceFileLoader("simcse_jax_config_file", str(file))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


@contextlib.contextmanager
def running(path: str) -> Iterator[tuple[ModuleType, tuple[str, ...]]]:
    """The config file that `--config path` means, and the argument of its functions: none, or that of `FILE:ARGUMENT`.

    Raises:
      UserError: when there is no such file; and, in one line with its name, for all that goes wrong in it, here or in
        the functions that are called meanwhile.
    """
    name, colon, argument = path.partition(":")
    file = find(name)
    with mistakes_in(path):
        yield load_file(file), (argument,) if colon else ()


@contextlib.contextmanager
def mistakes_in(path: str) -> Iterator[None]:
    """Raises a `UserError` with the config file's name for all that goes wrong in its functions."""
    try:
        yield
    except NoSuchVariant as error:
        raise UserError(f"--config {path}: {error}") from None
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # the file is a program: anything can go wrong in it
        raise UserError(f"--config {path}: {type(error).__name__}: {reason(error)}") from None


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
