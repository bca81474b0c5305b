"""Configs of a few fields, written as keyword arguments: `train__epochs=1`."""

from pathlib import Path
from typing import Any

from ml_collections import config_dict

from simcse_jax.config.fields import default_config


def changed(config: config_dict.ConfigDict, **fields: Any) -> config_dict.ConfigDict:
    made = config.copy_and_resolve_references()
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return made


def config_of(**fields: Any) -> config_dict.ConfigDict:
    return changed(default_config(), **fields)


def short_run(model: Path, data: object, dev: object = "", **fields: Any) -> config_dict.ConfigDict:
    """The config of a run of four steps on one device, each of which is logged."""
    made = config_of(data__train=str(data), eval__data=str(dev), model__init_from=str(model), data__max_length=16)
    short = {"train__batch_size": 8, "train__max_steps": 4, "train__log_every": 1, "train__learning_rate": 1e-3}
    return changed(made, **{**short, "eval__every": 2, "parallel__devices": 1, **fields})
