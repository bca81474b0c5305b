"""All objectives by name in `config.objective`: the package's, as they are declared, and others from outside."""

import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from simcse_jax.data.pairing import Pairing
from simcse_jax.errors import UserError, hint, reason
from simcse_jax.objectives.declarations import DECLARATIONS
from simcse_jax.objectives.objective import Objective, PairingObjective

GROUP = "simcse_jax.objectives"  # of entry points, by which packages bring theirs


OBJECTIVES: dict[str, Objective] = {kind.name: kind() for kind in DECLARATIONS}  # and those from outside
BUILT_IN = frozenset(OBJECTIVES)


def add(source: Any) -> Objective:
    """An objective from outside: a class of a config file, or the name of an entry point of a package.

    The same class of a file that was read again with the same content is the same objective, so that both configs
    share a compilation.

    Raises:
      UserError: when there is no such entry point, it cannot be loaded, or the class lacks a part or has the name of
        one of the package's own.
    """
    kind = _load_entry_point(source) if isinstance(source, str) else source
    if not (isinstance(kind, type) and issubclass(kind, Objective)):
        raise UserError(f"objective {source!r:.60}: is not a subclass of simcse_jax.objectives.objective.Objective")
    name, fields = getattr(kind, "name", ""), kind.fields
    if not (isinstance(name, str) and name.isidentifier()):
        raise UserError(f"objective {kind.__qualname__}: its `name` must be letters, digits and underscores")
    if name in BUILT_IN:
        raise UserError(f"objective {name}: this is the name of one of the package's own; choose another")
    if "weight" not in fields:
        raise UserError(f"objective {name}: its `fields` must have a weight: simcse_jax.field.weight()")
    source, before = _source(kind), OBJECTIVES.get(name)
    if before is None or _source(type(before)) != source:
        OBJECTIVES[name] = kind()
    return OBJECTIVES[name]


def check_known(names: Iterable[str]) -> None:
    """Loads the entry points of objectives that are not loaded yet.

    Raises:
      UserError: naming the first one that does not exist.
    """
    for name in names:
        if name not in OBJECTIVES:
            add(name)


def _load_entry_point(name: str) -> Any:
    """The object that the entry point of this name refers to."""
    for entry in importlib.metadata.entry_points(group=GROUP, name=name):
        try:
            return entry.load()
        except Exception as error:  # it is a program: anything can go wrong in it
            raise UserError(f"objective {name}: {entry.value}: {type(error).__name__}: {reason(error)}") from None
    raise UserError(
        f"config.objective.{name}: no such objective here{hint(name, BUILT_IN)}. If it came "
        "with a config file or a package, run that file, or install the package that has it as an entry point of "
        f"{GROUP}"
    )


def _source(kind: type) -> object:
    """The name of a class and the content of its file: equal for the same class, read again."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    content = SOURCES.setdefault(kind, Path(file).read_bytes() if file and Path(file).is_file() else kind)
    return kind.__qualname__, content


SOURCES: dict[type, object] = {}  # of the classes from outside, when they were added


def trained_objectives(fields: Any) -> dict[str, Objective]:
    """The objectives whose weight is above 0, by name.

    Args:
      fields: `config.objective`, or the dictionary in `run.json`; an objective from outside may be missing.
    """
    return {name: objective for name, objective in OBJECTIVES.items() if name in fields and fields[name]["weight"] > 0}


def load_loss(objective: Objective) -> Objective:
    """The objective with its loss, from the module of its name, which imports JAX; a user's own has it already."""
    return _load(objective.name, type(objective).__name__) if objective.name in BUILT_IN else objective


@functools.cache  # the same object each time, which compiled programs are kept by
def _load(name: str, kind: str) -> Objective:
    loaded: Objective = getattr(importlib.import_module(f"simcse_jax.objectives.{name}"), kind)()
    return loaded


def find_pairing(fields: Any) -> tuple[str, Pairing] | None:
    """The trained objective that makes its own pairs, and how; None: rows are pairs."""
    makers = (
        (name, objective)
        for name, objective in trained_objectives(fields).items()
        if isinstance(objective, PairingObjective)
    )
    return next(((name, objective.pairing(fields[name])) for name, objective in makers), None)


def find_temperature(fields: Any) -> float | None:
    """The temperature of the first contrastive objective that is trained; None without one.

    Args:
      fields: as for `trained_objectives`.
    """
    contrasts = (fields[name] for name, objective in trained_objectives(fields).items() if objective.contrasts)
    return next((section["temperature"] for section in contrasts if "temperature" in section), None)


def needing(fields: Any, need: str) -> list[Objective]:
    """The trained objectives that need something, an attribute of `Objective`; `fields` as for `trained_objectives`."""
    return [objective for objective in trained_objectives(fields).values() if getattr(objective, need)]
