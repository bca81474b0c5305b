"""`sweep --over FIELD=VALUE[=LABEL],… …`: a table of a recipe at these values of its fields, without a file of rows.

Of several `--over`, each value of one meets each value of the others.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from ml_collections import config_dict

from simcse_jax.config.fields import flatten, short_names
from simcse_jax.config.flags import field_meant
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_label
from simcse_jax.training.sweeps.metrics import AGAINST
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

OPTION = "--over"
WORDS = {"true": True, "1": True, "false": False, "0": False}


def rows_over(given: Sequence[str], config: config_dict.ConfigDict) -> tuple[Variant, ...]:
    """The rows: `temperature=0.05` for `objective.info_nce.temperature`, unless the value has a label.

    Raises:
      UserError: when a field is not one of the config, is given twice, or a value is not of its type.
    """
    known = flatten(config)
    values: dict[str, list[tuple[Any, str]]] = {}
    for each in given:
        name, equals, texts = each.partition("=")
        if not equals or not texts.strip():
            raise UserError(
                f"{OPTION} {each}: give a field and its values, e.g. {OPTION} train.learning_rate=1e-5,3e-5"
            )
        if name not in known:
            raise UserError(f"{OPTION} {name}: no such field; the nearest one is {field_meant(name, known)}")
        if name in values:
            raise UserError(f"{OPTION} {name}: is given twice; give all values at once, with commas")
        try:
            labelled = [split_label(text.strip()) for text in texts.split(",")]
        except UserError as error:
            raise UserError(f"{OPTION} {name}: {error}") from None
        values[name] = [(_read(name, text, known[name]), label) for text, label in labelled]
    short = short_names(values)
    return tuple(
        Variant(
            " ".join(label or f"{name}={_shown(value)}" for name, (value, label) in zip(short, row, strict=True)),
            {name: value for name, (value, _) in zip(values, row, strict=True)},
        )
        for row in itertools.product(*values.values())
    )


def make_sweep(config: config_dict.ConfigDict, given: Sequence[str]) -> None:
    """Gives a recipe's config the section `sweep` of these rows; the first one is the baseline.

    Raises:
      UserError: when the config is a sweep already; see also `rows_over`.
    """
    if "sweep" in config:
        raise UserError(f"{OPTION}: this config has rows of its own; give a recipe, such as unsup_bert")
    names = ", ".join(each.partition("=")[0] for each in given)
    columns = AGAINST if config.eval.against_start else ("stsb_dev",)
    config.sweep = sweep_defaults(f"Values of {names}", "Ours", columns, rows_over(given, config)[0].name)


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, tuple):
        raise UserError(f"{OPTION} {name}: is a list; write a file of rows, as in configs/ablations/")
    try:
        return WORDS[text.lower()] if isinstance(default, bool) else type(default)(text)
    except (KeyError, ValueError):
        raise UserError(f"{OPTION} {name}: {text!r:.60} is not of its type, {type(default).__name__}") from None


def _shown(value: Any) -> str:
    return f"{value}".replace("/", "-")  # a row is a folder
