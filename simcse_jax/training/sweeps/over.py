"""`sweep --over FIELD=VALUE,VALUE …`: a table of a recipe at these values of its fields, without a file of rows.

Of several `--over`, each value of one meets each value of the others.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import config_dict

from simcse_jax.config.fields import flatten, short_names
from simcse_jax.config.flags import SWITCH, no_such_field
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps.metrics import AGAINST, choosing_metric
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

OPTION = "--over"


def split_options(options: Sequence[str]) -> dict[str, list[str]]:
    """The values by field of `--over FIELD=VALUE,VALUE`.

    Raises:
      UserError: when an option is not of that form.
    """
    values: dict[str, list[str]] = {}
    for option in options:
        name, equals, texts = option.partition("=")
        if not equals or not texts.strip():
            raise UserError(
                f"{OPTION} {option}: give a field and its values, e.g. {OPTION} train.learning_rate=1e-5,3e-5"
            )
        values.setdefault(name, []).extend(text.strip() for text in texts.split(","))
    return values


def rows_over(over: Mapping[str, Sequence[Any]], config: config_dict.ConfigDict) -> tuple[Variant, ...]:
    """The rows, named by their values: `temperature=0.05` for `objective.info_nce.temperature`.

    Args:
      over: by the names of fields their values, also as text.
      config: with the fields.

    Raises:
      UserError: when a field is not one of the config, or a value is not of its type.
    """
    fields = flatten(config)
    values: dict[str, list[Any]] = {}
    for name, items in over.items():
        if name not in fields:
            raise UserError(f"{OPTION} {name}: {no_such_field(name, fields)}")
        values[name] = [_read(name, str(value), fields[name]) for value in items]
    rows = (dict(zip(values, row, strict=True)) for row in itertools.product(*values.values()))
    short = dict(zip(values, short_names(values), strict=True))
    return tuple(
        # A row is a folder.
        Variant(" ".join(f"{short[name]}={value}".replace("/", "-") for name, value in row.items()), row)
        for row in rows
    )


def make_sweep(config: config_dict.ConfigDict, over: Mapping[str, Sequence[Any]]) -> None:
    """Gives a recipe's config the section `sweep` of these rows; the first one is the baseline.

    It has no columns yet: they follow from the whole config (`name_columns`).

    Raises:
      UserError: when the config is a sweep already; see also `rows_over`.
    """
    if "sweep" in config:
        raise UserError(f"{OPTION}: this config has rows of its own; give a recipe, such as unsup_bert")
    config.sweep = sweep_defaults(f"Values of {', '.join(over)}", "Ours", (), rows_over(over, config)[0].name)


def name_columns(config: config_dict.ConfigDict) -> None:
    """Sets the columns, unless they are given: the scores before and after training, or what chooses the checkpoint."""
    if not config.sweep.metrics:
        config.sweep.metrics = AGAINST if config.eval.against_start else (choosing_metric(config),)


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, tuple):
        raise UserError(f"{OPTION} {name}: is a list; write a file of rows, as in configs/ablations/")
    try:
        return SWITCH[text.lower()] if isinstance(default, bool) else type(default)(text)
    except (KeyError, ValueError):
        raise UserError(f"{OPTION} {name}: {text!r:.60} is not of its type, {type(default).__name__}") from None
