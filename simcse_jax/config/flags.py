"""The command line of a run: `--config FILE[:VARIANT] --workdir DIR [--config.FIELD=VALUE …]`.

FILE may be the `run.json` of a run, which it repeats.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from ml_collections import config_dict

from simcse_jax.choices import pooler_of
from simcse_jax.config.fields import FIELDS, flatten
from simcse_jax.config.recipes import FOLDER, find_recipe, report_mistakes, run_recipe
from simcse_jax.config.recorded import is_record, recorded_config
from simcse_jax.errors import UserError, hint, near, right_value
from simcse_jax.host.storage import local_path

# Other packages' names of fields, and common short ones, by their last part.
MEANT = {
    "train.learning_rate": ("lr",),
    "train.batch_size": ("bs", "per_device_train_batch_size"),
    "train.epochs": ("num_epochs", "num_train_epochs"),
    "train.max_steps": ("steps", "num_steps"),
    "train.warmup": ("warmup_steps", "warmup_ratio", "num_warmup_steps"),
    "data.max_length": ("max_seq_length", "max_len"),
    "data.train": ("train_file", "data"),
    "objective.info_nce.temperature": ("temp", "temperature", "tau"),
    "model.init_from": ("model_name_or_path", "name", "pretrained"),
    "model.pooler": ("pooler", "pooling", "pooler_type"),
}
# `train --data FILE`: as the other commands call it.
SHORT = {"data": "data.train", "model": "model.init_from", "eval": "eval.data", "folds": "data.folds"}
SHORT |= {"report-to": "train.report_to"}
ALL_FIELDS = " (simcse-jax train --help has all fields)"
SWITCH = {"true": True, "1": True, "false": False, "0": False}
FOLDERS = {"workdir": "where checkpoints, metrics and results go", "profile": "where a trace of a few steps goes"}


def parse(
    argv: Sequence[str], needs_workdir: bool = True, prepare: Callable[[config_dict.ConfigDict], None] | None = None
) -> tuple[config_dict.ConfigDict, str]:
    """Reads `--config FILE --workdir DIR [--config.FIELD=VALUE …]`.

    Args:
      argv: the arguments.
      needs_workdir: whether `--workdir` must be there.
      prepare: changes the file's config, before the values of the command line.

    Returns:
      The config, and the workdir (empty if none is needed).

    Raises:
      UserError: for any mistake in flags, file or values; for an unknown option or field it gives a near one.
    """
    config, _, folders, _ = _parse(argv, ("workdir",) if needs_workdir else (), needs_workdir, prepare)
    return config, folders.get("workdir", "")


def parse_run(
    argv: Sequence[str], needs_workdir: bool = True
) -> tuple[config_dict.ConfigDict, str, str | None, dict[str, Any]]:
    """As `parse`; the third value is the folder of `--profile DIR`, not in the config since it changes no result.

    The fourth is the result of `changed_from`.
    """
    config, user_fields, folders, usual = _parse(argv, tuple(FOLDERS), needs_workdir)
    path = split_config(argv)[0]
    if is_of_package(path):
        leave_out_missing_scores(config, user_fields)
    return config, folders["workdir"], folders["profile"] or None, changed_from(path, usual, config)


def changed_from(name: str, usual: Mapping[str, Any], config: config_dict.ConfigDict) -> dict[str, Any]:
    """The recipe of a run for its `run.json`: its name, and its `usual` values of the fields that have others now."""
    changed = {field: usual.get(field) for field, value in flatten(config).items() if value != usual.get(field)}
    return {"name": name, "changed": changed}


def _parse(
    argv: Sequence[str],
    folders: Sequence[str],
    needs_workdir: bool,
    prepare: Callable[[config_dict.ConfigDict], None] | None = None,
) -> tuple[config_dict.ConfigDict, set[str], dict[str, str], dict[str, Any]]:
    """The config, the names of the fields that are given, these options' values, and the recipe's values."""
    path, rest = split_config(argv)
    if not path:
        raise UserError("--config FILE is missing, e.g. --config unsup_bert")
    config, complete = load_config(path)
    usual = flatten(config)
    if prepare:
        prepare(config)
    values = {}
    for name in folders:
        texts, rest = split_option(rest, f"--{name}")
        values[name] = texts[-1] if texts else ""
        if texts == [""]:
            raise UserError(f"--{name}: name a folder")
    fields, unknown = split_fields(rest)
    if unknown:
        options = ["config", "workdir", *SHORT, *(("profile", "dry-run") if "profile" in folders else ("over",))]
        raise UserError(no_such_option(unknown, flatten(config), [f"--{name}" for name in options]))
    config.unlock()
    user_fields = {name: value for name, _, value in (field.partition("=") for field in fields)}
    for name, value in user_fields.items():
        _set_text(config, name, value)
    file, variant = find_config(path)
    if file.startswith(f"{FOLDER}/") and not config.get("parallel", {}).get("process_id"):
        recipe = Path(file).relative_to(FOLDER).with_suffix("")
        print(f"recipe: {recipe.as_posix()}{variant}", file=sys.stderr, flush=True)  # not a file of the current folder
    with report_mistakes(path):
        complete(config, {*user_fields})
    if needs_workdir and not values["workdir"]:
        raise UserError(f"--workdir DIR is missing: {FOLDERS['workdir']}")
    return config, {*user_fields}, values, usual


def _set_text(config: config_dict.ConfigDict, name: str, text: str) -> None:
    """Sets a field to a value of its type, as it is written on a command line."""
    fields = flatten(config)
    if not fields:
        raise UserError("--config: the file's config has no fields; start from simcse_jax.config.default_config()")
    if name not in fields:
        raise UserError(f"--config.{name}: {no_such_field(name, fields, '--config.')}")
    text = pooler_of(text) if name.endswith(".pooler") else text
    config.update_from_flattened_dict({name: read_value(f"--config.{name}", text, fields[name])})


def read_value(name: str, text: str, default: Any) -> Any:
    """The value of the type of `default` that a command line has as `text`; `name` is its name for errors."""
    try:
        if isinstance(default, bool):
            return SWITCH[text.lower()]
        if isinstance(default, tuple | list):
            parts = [] if text == "none" else text.split(",")
            return type(default)(part.strip() for part in parts if part.strip())
        return type(default)(text)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{name}={text:.60}: must be {right_value(default)}") from None


def leave_out_missing_scores(config: config_dict.ConfigDict, user_fields: Collection[str]) -> None:
    """Leaves out scores whose data a recipe of the package names but which are missing here, and prints that.

    `user_fields`: the names of the fields that the user has set; data named there must exist.
    """
    data = config.eval.data
    if not data or "eval.data" in user_fields or local_path(data).exists():
        return
    if not config.parallel.process_id:
        print(f"{data} is not there, so nothing is scored (config.eval.data names what to score on)", file=sys.stderr)
    needing = ("data", "extra", "transfer", "postprocess", "postprocess_data", "postprocess_dimensions")
    config.update_from_flattened_dict(
        {name: FIELDS[name].default if name != "eval.data" else "" for name in (f"eval.{part}" for part in needing)}
    )
    if not config.eval.retrieval.data:
        config.train.patience = 0


def _full_name(arg: str) -> str:
    name, equals, value = arg.partition("=")
    field = SHORT.get(name.removeprefix("--")) if name.startswith("--") else None
    return f"--config.{field}{equals}{value}" if field else arg


def split_config(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The value of `--config`, empty if there is none, and the other arguments."""
    recipes, rest = split_option(argv, "--config")
    if len(recipes) > 1:
        raise UserError(f"--config is given {len(recipes)} times: {', '.join(recipes)}; give it once")
    return (recipes[0] if recipes else ""), rest


def split_option(argv: Sequence[str], *names: str) -> tuple[list[str], list[str]]:
    """All values of an option, given by any of its names, and the other arguments."""
    values, rest, remaining = [], [], iter(argv)
    for arg in remaining:
        name, equals, value = arg.partition("=")
        if name in names:
            values.append(value if equals else next(remaining, ""))
        else:
            rest.append(arg)
    return values, rest


def split_fields(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of `--config.FIELD=VALUE`, as FIELD=VALUE, and the other arguments; a switch stands alone."""
    fields, rest, remaining = [], [], [*map(_full_name, argv)]
    while remaining:
        arg = remaining.pop(0)
        name, equals, value = arg.partition("=")
        if not name.startswith("--config."):
            rest.append(arg)
            continue
        if not equals:
            value = remaining.pop(0) if remaining and not remaining[0].startswith("--") else "true"
        fields.append(f"{name.removeprefix('--config.')}={value}")
    return fields, rest


def find_config(path: str) -> tuple[str, str]:
    """Where the file of `FILE[:VARIANT]` is, a local one or a recipe of the package, and `:VARIANT`.

    A `run.json` is taken as it is named.
    """
    if is_record(path):
        return path, ""
    name, colon, variant = path.partition(":")
    return f"{find_recipe(name)}", f"{colon}{variant}"


def is_of_package(path: str) -> bool:
    """Whether `--config path` is a recipe of the package."""
    return Path(find_config(path)[0]).resolve().is_relative_to(FOLDER)


def load_config(
    path: str,
) -> tuple[config_dict.ConfigDict, Callable[[config_dict.ConfigDict, AbstractSet[str]], None]]:
    """The config of a file or a recipe, `FILE[:VARIANT]`, or of a run's `run.json`, and the function that completes it.

    A file may have this function, `complete(config, given)`: it is called when the values that the user gives are set,
    and gets the names of their fields.
    """
    if is_record(path):
        return recorded_config(path), _complete_nothing
    with run_recipe(path) as (module, argument):
        if not hasattr(module, "get_config"):
            raise UserError(f"--config {path}: has no get_config()")
        config = module.get_config(*argument)
        if isinstance(config, config_dict.ConfigDict):
            for name, value in flatten(config).items():  # with numbers in lists, and other names of poolers
                if isinstance(value, tuple):
                    config.update_from_flattened_dict({name: tuple(map(str, value))})
                elif name.endswith(".pooler") and isinstance(value, str):
                    config.update_from_flattened_dict({name: pooler_of(value)})
            return config, getattr(module, "complete", _complete_nothing)
    raise UserError(f"--config {path}: get_config must return a ConfigDict (see simcse_jax.config.default_config)")


def _complete_nothing(config: config_dict.ConfigDict, user_fields: AbstractSet[str]) -> None:
    """The `complete` of config files that set all values."""


def fields_meant(name: str, fields: Mapping[str, Any]) -> list[str]:
    """The fields that a short name may mean: one if it is clear, none if nothing is called so.

    They are those whose names end so or, if none does, in our word for what other packages call so; of several, those
    that have an effect with these objectives.

    Args:
      fields: the values of the fields, by their dotted names.
    """
    section, dot, last = name.rpartition(".")
    usual = next((field for field, names in MEANT.items() if last in names and field in fields), "")
    for suffix in (name, section + dot + usual.rpartition(".")[2]):
        ending = [field for field in fields if f".{field}".endswith(f".{suffix}")]
        in_use = [field for field in ending if _is_in_use(field, fields)] or ending
        if len(in_use) > 1 and usual and not section and _is_in_use(usual, fields):
            return [usual]
        if in_use:
            return in_use
    return []


def no_such_field(name: str, fields: Mapping[str, Any], before: str = "") -> str:
    """The message for an unknown field, with the fields that may be meant; `before` is put before their names."""
    meant = [before + field for field in _likely_fields(name, fields)]
    if len(meant) > 1:
        return f"could be {', '.join(meant)}; give the whole name of one of them"
    return f"no such field; the nearest one is {meant[0]}" if meant else f"no such field{ALL_FIELDS}"


def _likely_fields(name: str, fields: Mapping[str, Any]) -> list[str]:
    """The fields that a short name may mean or, if there are none, the one whose name is similar to it, if any is."""
    if meant := fields_meant(name, fields):
        return meant
    last = [] if "." in name else near(name, {field.rpartition(".")[2] for field in fields})
    return near(name, fields_meant(last[0], fields), cutoff=0)[:1] if last else near(name, fields)[:1]


def no_such_option(argv: Sequence[str], fields: Mapping[str, Any], options: Collection[str]) -> str:
    """The message for the first of `argv`, which is none of the options: the field or the option that may be meant."""
    option, equals, value = argv[0].partition("=")
    if not option.startswith("--"):
        return f"{argv[0]!r:.60} stands after no option"
    if not equals:
        value = next((text for text in argv[1:2] if not text.startswith("--")), "VALUE")
    name = option.removeprefix("--").replace("-", "_")
    meant = fields_meant(name, fields) or [field for field in fields if field.replace(".", "_") == name]
    if not meant and (found := hint(option, options)):
        return f"no option {option:.60}{found}"
    meant = [f"--config.{field}={value}" for field in meant or _likely_fields(name, fields)]
    return f"no option {option:.60}; write {' or '.join(meant)}" if meant else f"no option {option:.60}{ALL_FIELDS}"


def _is_in_use(field: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field is not one of an objective with weight 0."""
    section, _, rest = field.partition(".")
    return section != "objective" or bool(fields.get(f"objective.{rest.partition('.')[0]}.weight"))
