"""Configs of a few fields, written as keyword arguments: `train__epochs=1`."""

import re
from pathlib import Path
from typing import Any

import pytest
from ml_collections import config_dict

from simcse_jax.config import flags
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError


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


def parse(*fields: str) -> config_dict.ConfigDict:
    """The checked config with these values of fields, as on the command line."""
    given = (f"--config.{field}" for field in fields)
    config, _ = flags.parse(["--config=unsup_bert", "--workdir=w", *given])
    validate(config)
    return config


def refused(*fields: str) -> str:
    """The field that a one-line refusal of these values begins with."""
    with pytest.raises(UserError) as caught:
        parse(*fields)
    return re.fullmatch(r"config\.([\w.]+\w).*", str(caught.value))[1]
