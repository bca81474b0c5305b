"""All objectives by name: each file of this folder declares one, as `OBJECTIVE`."""

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from simcse_jax.objectives.objective import Objective


def _own() -> dict[str, Objective]:
    """Those of the package, in the order of `--help`."""
    files = [file.name for file in pkgutil.iter_modules([str(Path(__file__).parent)]) if file.name != "registry"]
    modules = [importlib.import_module(f"simcse_jax.objectives.{name}") for name in files]
    found = [module.OBJECTIVE for module in modules if hasattr(module, "OBJECTIVE")]
    return {one.name: one for one in sorted(found, key=lambda one: (one.place, one.name))}


OBJECTIVES: dict[str, Objective] = _own()  # by their names in `config.objective`


def trained(fields: Any) -> dict[str, Objective]:
    """The objectives whose weight is above 0, by name.

    Args:
      fields: `config.objective`, or the dictionary in `run.json`; an objective missing in an older run is off.
    """
    return {name: objective for name, objective in OBJECTIVES.items() if fields.get(name, {}).get("weight", 0.0) > 0}


def needing(fields: Any, need: str) -> list[Objective]:
    """The trained objectives that need something, an attribute of `Objective`; `fields` as for `trained`."""
    return [objective for objective in trained(fields).values() if getattr(objective, need)]
