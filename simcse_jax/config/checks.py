"""Whether a config is valid: each field by its own rules, and fields that must go together."""

from collections.abc import Mapping
from math import isfinite

from simcse_jax.config.conflicts import check_together
from simcse_jax.config.fields import LARGEST, declared_fields, flatten, trains
from simcse_jax.config.sections import Config, Section
from simcse_jax.errors import UserError, hint, right_value
from simcse_jax.field import Field

# Sections that have no effect where nothing is trained.
OF_TRAINING = ("data.", "objective.", "matryoshka.", "projector.", "teacher.", "views.", "train.")
OF_SCORING = {"train.epochs", "train.report_to", "train.dtype", "train.matmul_precision", "data.max_length"}  # of these
LARGEST_FLOAT, SMALLEST_FLOAT = 3.4e38, 1.2e-38  # of float32


def validate(config: Config) -> Section:
    """Checks every field that can be checked without reading anything; sections have been checked already."""
    if isinstance(config, Section):
        return config
    if "sweep" in config:
        raise UserError("config.sweep: this config is a sweep; run it with simcse-jax sweep")
    values = flatten(config)
    fields = declared_fields(config)
    _check_names(values, fields)
    for name, field in fields.items():
        check_field(f"config.{name}", values[name], field)
    section = Section.of(config)
    check_together(section)
    return section


def check_field(name: str, value: object, field: Field) -> None:
    """Refuses a value that is not one of the field's, by its name for errors."""
    check_type(name, value, field.default)
    for rule in field.rules:
        rule.check(name, value)
    check_range(name, value)


def check_type(field: str, value: object, default: object) -> None:
    """Refuses a value whose type is not that of `default`; an integer is as good as a float."""
    if type(value) is not type(default) and not (isinstance(default, float) and type(value) is int):
        raise UserError(f"{field}={value!r}: must be {right_value(default)}")


def check_range(field: str, value: object) -> None:
    """Refuses a number that a device cannot hold, and a text that cannot be written, as bytes that are not UTF-8."""
    if isinstance(value, str) and value != value.encode(errors="ignore").decode():
        raise UserError(f"{field}={value!r:.100}: is not UTF-8; type it in UTF-8, or rename the file")
    if type(value) is int and abs(value) > LARGEST and field != "config.seed":
        raise UserError(f"{field}={str(value)[:40]}: must be at most {LARGEST:,}")
    if type(value) is float and (not isfinite(value) or abs(value) > LARGEST_FLOAT or 0 < abs(value) < SMALLEST_FLOAT):
        raise UserError(f"{field}={value!r}: must be a number of type float32, 0 or from {SMALLEST_FLOAT} in size")


def _check_names(values: Mapping[str, object], fields: Mapping[str, Field]) -> None:
    for name in values:
        if name not in fields:
            raise UserError(f"config.{name}: no such field{hint(name, fields, 'config.')}")
    for name in fields:
        if name not in values:
            raise UserError(f"config.{name} is missing; start a config from simcse_jax.config.default_config()")


def ineffective(config: Config) -> list[str]:
    """The fields, `NAME=VALUE`, that were set but have no effect with these other fields."""
    values, fields = flatten(config), declared_fields(config)
    off = {name for name, field in fields.items() if not field.has_effect(config)}
    if not trains(config):
        off |= {name for name in values if name.startswith(OF_TRAINING)} - OF_SCORING
    return [f"{name}={values[name]}" for name in sorted(off) if values[name] != fields[name].default]
