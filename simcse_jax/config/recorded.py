"""A config as a run's `run.json` records it, and `--config RUN/run.json`, which repeats the run or changes a field."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from ml_collections import config_dict

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.sections import Config
from simcse_jax.errors import UserError, reason
from simcse_jax.host.storage import as_path, other_format, read_json, written_by
from simcse_jax.host.version import __version__
from simcse_jax.objectives.registry import BUILT_IN

ELSEWHERE = ("parallel.processes", "parallel.process_id", "parallel.coordinator")  # where the run was, not what it is


def is_record(path: str) -> bool:
    """Whether `--config` names a run's record, and no Python file (with a variant, perhaps)."""
    return path.endswith(".json") and (":" not in path or "://" in path)


def recorded_config(path: str) -> config_dict.ConfigDict:
    """The config that a `run.json` records, with the processes and their addresses at their defaults."""
    run = read_json(as_path(path))
    recorded = run.get("config")
    if not recorded or not isinstance(recorded, dict):
        raise UserError(f"--config {path}: has no config; give the run.json of a run's folder, or a recipe")
    try:
        config = default_config(*(name for name in recorded.get("objective", {}) if name not in BUILT_IN))
        fields = flatten(recorded)
        check_names(run, fields, flatten(config), f"--config {path}")
        for name, value in fields.items():
            if name not in ELSEWHERE:
                config.update_from_flattened_dict({name: tuple(value) if isinstance(value, list) else value})
    except (TypeError, ValueError) as error:
        raise UserError(f"--config {path}: damaged: {reason(error)}") from None
    return config


def to_record(config: Config) -> dict[str, Any]:
    """The config as `run.json` has it: tuples are lists."""
    return json.loads(json.dumps(config.to_dict()))


def config_fingerprint(config: Config) -> str:
    """A fingerprint of all fields that must be the same in all processes."""
    fields = {name: value for name, value in sorted(flatten(config).items()) if name != "parallel.process_id"}
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def check_names(run: Mapping[str, Any], names: Collection[str], fields: Collection[str], where: str) -> None:
    """Refuses a `run.json` whose config has other `names` than our `fields`: that of another version, or damaged."""
    missing = [f"config.{name} is missing" for name in fields if name not in names]
    problems = missing + [f"config.{name} is no field" for name in names if name not in fields]
    if problems and written_by(run) in (None, __version__):
        raise UserError(f"{where}: damaged: {problems[0]}")
    if problems:
        raise other_format(where, run, "use that version, or train again")
