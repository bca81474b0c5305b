"""Recipes: the config files that come with the package, and the file that `--config` names.

An installed package has them in its folder `configs`; in a clone they are next to the package. In both places a config
file may import a recipe: `from simcse_jax.configs.unsup_bert import get_config`.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

from simcse_jax.errors import UserError, nearest
from simcse_jax.host.storage import local_path

PACKAGE = Path(__file__).resolve().parents[1]
FOLDER = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"


def names() -> list[str]:
    """The package's recipes, `unsup_bert` or `ablations/simcse_table3`; those outside `ablations/` come first."""
    paths = [
        file.relative_to(FOLDER).with_suffix("") for file in (*FOLDER.glob("*.py"), *FOLDER.glob("ablations/*.py"))
    ]
    return [path.as_posix() for path in sorted(paths, key=lambda path: (len(path.parts), path))]


def find(name: str) -> Path:
    """The config file that `--config NAME` means, NAME without a variant.

    A local file wins, whose name may lack the `.py`. Otherwise it is a recipe of the package: `unsup_bert`,
    `unsup-bert`, `unsup_bert.py` and `configs/unsup_bert.py` are the same.
    """
    for local in (local_path(name), local_path(f"{name}.py")):
        if local.is_file():
            return local
    recipe, known = name.removeprefix("configs/").removesuffix(".py").replace("-", "_"), names()
    if recipe in known:
        return FOLDER / f"{recipe}.py"
    hint = f"; the nearest recipe is {nearest(recipe, known)}, all are {', '.join(known)}" if known else ""
    raise UserError(f"--config {name}: no such config file or recipe{hint}")


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
