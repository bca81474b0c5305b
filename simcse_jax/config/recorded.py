"""`--config RUN/run.json`: the config of a run, to repeat it, or to change a field of it."""

from ml_collections import config_dict

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.errors import UserError, nearest
from simcse_jax.host.storage import as_path, read_json
from simcse_jax.objectives.registry import OWN


def recorded_config(path: str) -> config_dict.ConfigDict:
    """The config that a `run.json` records; fields that its version did not have are at their defaults.

    Raises:
      UserError: when the file cannot be read or has no config, or a field of it is not one of this version. It names
        the field.
    """
    section = read_json(as_path(path)).get("config")
    if not isinstance(section, dict):
        raise UserError(f"--config {path}: has no config; give the run.json of a run's folder, or a recipe")
    objectives = section.get("objective")
    others = [name for name in objectives if name not in OWN] if isinstance(objectives, dict) else []
    config = default_config(*others)
    known = flatten(config)
    for name, value in flatten(config_dict.ConfigDict(section)).items():
        if name not in known:
            hint = f"the nearest one is {nearest(name, known)}"
            raise UserError(f"--config {path}: no field {name} in this version; {hint}")
        try:
            config.update_from_flattened_dict({name: tuple(value) if isinstance(value, list) else value})
        except (TypeError, ValueError):
            raise UserError(f"--config {path}: {name} is {value!r:.60}; its default is {known[name]!r}") from None
    return config
