"""Config files: the recipes of the package, the file that `--config` names, and its variants (`unsup_bert:large`).

An installed package has them in its folder `configs`; in a clone they are next to the package. In both places a config
file may import a recipe: `from simcse_jax.configs.unsup_bert import get_config`.
"""

import contextlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, hint, reason
from simcse_jax.host.storage import local_path

PACKAGE = Path(__file__).resolve().parents[1]
FOLDER = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"


def recipe_names() -> list[str]:
    """The package's recipes, `unsup_bert` or `ablations/simcse_table3`; those outside `ablations/` come first."""
    paths = [
        file.relative_to(FOLDER).with_suffix("") for file in (*FOLDER.glob("*.py"), *FOLDER.glob("ablations/*.py"))
    ]
    return [path.as_posix() for path in sorted(paths, key=lambda path: (len(path.parts), path))]


def find_recipe(name: str) -> Path:
    """The config file that `--config NAME` means, NAME without a variant.

    A local file wins, whose name may lack the `.py`. Otherwise it is a recipe of the package: `unsup_bert`,
    `unsup-bert`, `unsup_bert.py` and `configs/unsup_bert.py` are the same.
    """
    for local in (local_path(name), local_path(f"{name}.py")):
        if local.is_file():
            return local
    recipe, recipes = name.removeprefix("configs/").removesuffix(".py").replace("-", "_"), recipe_names()
    if recipe in recipes:
        return FOLDER / f"{recipe}.py"
    first = [known for known in recipes if "/" not in known]
    listed = f"; there are {', '.join(first)}, and those of ablations/" if first else ""
    raise UserError(f"--config {name}: no such config file or recipe{hint(recipe, recipes) or listed}")


def let_import() -> None:
    """Lets config files import the package's recipes, and modules in the current folder.

    With `python -m` the current folder is on the path already; with a console script it is not.
    """
    if FOLDER.parent != PACKAGE and "simcse_jax.configs" not in sys.modules:  # a clone: next to the package
        spec = importlib.machinery.ModuleSpec("simcse_jax.configs", None, is_package=True)
        spec.submodule_search_locations = [str(FOLDER)]
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    folder = os.getcwd()
    if not sys.flags.safe_path and not {"", folder} & set(sys.path):
        sys.path.append(folder)


class NoSuchVariant(UserError):
    """A config has no variant of this name; `variants` are those that it has."""

    def __init__(self, variant: str, variants: Iterable[str]):
        self.variants = tuple(variants)
        super().__init__(f"no variant {variant!r} of this config; it has {', '.join(self.variants)}")


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
def run_recipe(path: str) -> Iterator[tuple[ModuleType, tuple[str, ...]]]:
    """The config file that `--config path` means, and the argument of its functions: none, or that of `FILE:ARGUMENT`.

    Raises:
      UserError: when there is no such file; and, in one line with its name, for all that goes wrong in it, here or in
        the functions that are called meanwhile.
    """
    name, colon, argument = path.partition(":")
    file = find_recipe(name)
    with report_mistakes(path):
        yield load_file(file), (argument,) if colon else ()


@contextlib.contextmanager
def report_mistakes(path: str) -> Iterator[None]:
    """Raises a `UserError` with the config file's name for all that goes wrong in its functions."""
    try:
        yield
    except NoSuchVariant as error:
        raise UserError(f"--config {path}: {error}") from None
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # the file is a program: anything can go wrong in it
        raise UserError(f"--config {path}: {type(error).__name__}: {reason(error)}") from None


def read_variants(module: ModuleType) -> tuple[str, ...]:
    """The variants of a config file, the default one first; empty if it has none."""
    parameters = inspect.signature(module.get_config).parameters
    if not parameters:
        return ()
    default = next(iter(parameters.values())).default
    try:
        module.get_config("?")
    except NoSuchVariant as error:
        return (default, *(name for name in error.variants if name != default))
    return ()


class ListedRecipe(NamedTuple):
    """A config file, as `--help` lists it."""

    file: Path
    about: str  # the first line of its docstring
    variants: tuple[str, ...] = ()  # the default one first


def list_recipes(folder: Path) -> list[ListedRecipe]:
    """The config files of a folder, sorted by name. For one that cannot be loaded, `about` says why."""
    recipes = []
    for file in sorted(folder.glob("*.py")):
        try:
            module = load_file(file)
            about = (module.__doc__ or "").strip().partition("\n")[0]
            recipes.append(ListedRecipe(file, about, read_variants(module)))
        except (Exception, SystemExit) as error:  # the file is a program: anything can go wrong in it
            recipes.append(ListedRecipe(file, f"cannot be loaded: {reason(error)}"))
    return recipes
