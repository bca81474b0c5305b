"""`--config RUN/run.json`: the config of a run, to repeat it, or to change a field of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import config_dict

from simcse_jax.config.fields import default_config, flatten, values_before
from simcse_jax.errors import UserError, nearest
from simcse_jax.host.storage import as_path, read_json
from simcse_jax.objectives.registry import BUILT_IN

ELSEWHERE = ("parallel.processes", "parallel.process_id", "parallel.coordinator")  # where the run was, not what it is


def is_record(path: str) -> bool:
    """Whether `--config` names a run's record, and no Python file (with a variant, perhaps)."""
    return path.endswith(".json") and (":" not in path or "://" in path)


def recorded_config(path: str) -> config_dict.ConfigDict:
    """The config that a `run.json` records.

    Fields that its version did not have are as they were in effect then, and the processes and their addresses are at
    their defaults.
    """
    section = read_json(as_path(path)).get("config")
    if not section or not isinstance(section, dict):
        raise UserError(f"--config {path}: has no config; give the run.json of a run's folder, or a recipe")
    objectives = section.get("objective")
    try:
        config = default_config(
            *(name for name in objectives if name not in BUILT_IN) if isinstance(objectives, dict) else ()
        )
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from None
    known = flatten(config)
    config.update_from_flattened_dict(values_before())
    for name, value in _flat(section, known):
        if name not in known:
            hint = f"the nearest one is {nearest(name, known)}"
            raise UserError(f"--config {path}: no field {name} in this version; {hint}")
        if name in ELSEWHERE:
            continue
        try:
            if isinstance(value, bool) != isinstance(known[name], bool):
                raise TypeError
            config.update_from_flattened_dict({name: tuple(value) if isinstance(value, list) else value})
        except (TypeError, ValueError):
            raise UserError(f"--config {path}: {name} is {value!r:.60}; its default is {known[name]!r}") from None
    return config


def _flat(section: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict) and f"{prefix}{name}" not in known:
            yield from _flat(value, known, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
