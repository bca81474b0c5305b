"""The command line of a run: `--config FILE[:VARIANT] --workdir DIR [--config.FIELD=VALUE …]`.

FILE may be the `run.json` of a run, which it repeats.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags
from ml_collections import config_dict, config_flags

from simcse_jax.choices import pooler_of
from simcse_jax.config.fields import FIELDS, flatten
from simcse_jax.config.recipes import FOLDER, find_recipe, report_mistakes, run_recipe
from simcse_jax.config.recorded import is_record, recorded_config
from simcse_jax.errors import UserError, nearest
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
SHORT = {"data": "data.train", "model": "model.init_from", "eval": "eval.data"}
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
      UserError: for any mistake in flags, file or values; for an unknown field it gives the nearest known one.
    """
    config, folders = _parse(argv, ("workdir",) if needs_workdir else (), prepare)
    return config, folders.get("workdir") or ""


def parse_run(argv: Sequence[str], needs_workdir: bool = True) -> tuple[config_dict.ConfigDict, str, str | None]:
    """As `parse`; the third value is the folder of `--profile DIR`, not in the config since it changes no result."""
    config, folders = _parse(argv, tuple(FOLDERS), needs_workdir=needs_workdir)
    if is_of_package(split_config(argv)[0]):
        leave_out_missing_scores(config, _named_fields(argv))
    return config, folders["workdir"] or "", folders["profile"]


def _parse(
    argv: Sequence[str],
    folders: Sequence[str],
    prepare: Callable[[config_dict.ConfigDict], None] | None = None,
    needs_workdir: bool = True,
) -> tuple[config_dict.ConfigDict, dict[str, str | None]]:
    """The config, and the values of these flags of `FOLDERS`."""
    values = flags.FlagValues()
    path, rest = split_config([_full_name(arg) for arg in argv])
    if not path:
        raise UserError("--config FILE is missing, e.g. --config unsup_bert")
    loaded, fields, complete = load_config(path)
    if prepare:
        prepare(loaded)
        fields = flatten(loaded)
    try:
        args = ["simcse_jax.main", *_last_of_each_list(rest, fields)]
        config_flags.DEFINE_config_dict("config", loaded, flag_values=values, sys_argv=args)
        for name in folders:
            flags.DEFINE_string(name, None, FOLDERS[name], flag_values=values)
        unknown = values(args)[1:]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, flags.Error) as error:
        raise UserError(_unknown_field(rest, fields) or str(error)) from None
    except RecursionError:  # absl compares an unknown name with those that it knows
        raise UserError(f"unknown argument {max(rest, key=len)!r:.60}…") from None
    if needs_workdir and "workdir" in folders and not values.workdir:
        raise UserError(f"--workdir DIR is missing: {FOLDERS['workdir']}")
    if "profile" in folders and values.profile == "":
        raise UserError("--profile: name a folder")
    if unknown:
        raise UserError(f"unknown argument {unknown[0]!r}; a field is set with --config.FIELD=VALUE")
    config = values.config.unlock()
    _split_tuples(config)
    for section in ("model", "eval"):
        if isinstance(name := config.get(section, {}).get("pooler"), str):
            config[section].pooler = pooler_of(name)
    file, variant = find_config(path)
    if file.startswith(f"{FOLDER}/") and not config.get("parallel", {}).get("process_id"):
        print(f"recipe: {file}{variant}", file=sys.stderr, flush=True)  # not a file of the current folder
    with report_mistakes(path):
        complete(config, _named_fields(rest))
    return config, {name: values[name].value for name in folders}


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


def _named_fields(argv: Sequence[str]) -> set[str]:
    return {_full_name(arg).lstrip("-").partition("=")[0].removeprefix("config.") for arg in argv}


def _full_name(arg: str) -> str:
    name, equals, value = arg.partition("=")
    field = SHORT.get(name.removeprefix("--")) if name.startswith("--") else None
    return f"--config.{field}{equals}{value}" if field else arg


def split_config(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The value of `--config`, empty if there is none, and the other arguments."""
    recipes, rest = split_option(argv, "--config", "-config")
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


class Loaded(NamedTuple):
    """A file's config, and the function that completes it."""

    config: config_dict.ConfigDict
    fields: dict[str, Any]  # the values, by dotted names
    complete: Callable[[config_dict.ConfigDict, AbstractSet[str]], None]  # sets what depends on the given values


def load_config(path: str) -> Loaded:
    """The config of a file or a recipe, `FILE[:VARIANT]`, or of a run's `run.json`.

    A file may have a function `complete(config, given)`: it is called when the values that the user gives are set, and
    gets the names of their fields.
    """
    if is_record(path):
        config = recorded_config(path)
        return Loaded(config, flatten(config), _complete_nothing)
    with run_recipe(path) as (module, argument):
        if not hasattr(module, "get_config"):
            raise UserError(f"--config {path}: has no get_config()")
        config = module.get_config(*argument)
        if isinstance(config, config_dict.ConfigDict):
            fields = flatten(config)  # fails for a config that is a part of itself
            return Loaded(config, fields, getattr(module, "complete", _complete_nothing))
    raise UserError(f"--config {path}: get_config must return a ConfigDict (see simcse_jax.config.default_config)")


def _complete_nothing(config: config_dict.ConfigDict, user_fields: AbstractSet[str]) -> None:
    """The `complete` of config files that set all values."""


def _unknown_field(argv: Sequence[str], fields: Mapping[str, Any]) -> str | None:
    for arg in argv:
        name = arg.lstrip("-").partition("=")[0]
        if name.startswith("config.") and name.removeprefix("config.") not in fields:
            name = name.removeprefix("config.")
            if not fields:
                return "--config: the file's config has no fields; start from simcse_jax.config.default_config()"
            return f"--config.{name}: {no_such_field(name, fields, '--config.')}"
    return None


def field_meant(name: str, fields: Mapping[str, Any]) -> str:
    """The field that a short name means; "" if there is none, or several are equally likely.

    It is the only field whose name ends so; of several, the only one that has an effect with these objectives; or
    the field that other packages call so.

    Args:
      fields: the values of the fields, by their dotted names.
    """
    ending = _fields_ending_in(name, fields)
    if len(ending) == 1:
        return ending[0]
    counting = [field for field in ending if _is_in_use(field, fields)]
    if len(counting) == 1:
        return counting[0]
    usual = "" if "." in name else _usual_field(name, fields)
    return usual if usual and _is_in_use(usual, fields) else ""


def no_such_field(name: str, all_fields: Mapping[str, Any], before: str = "") -> str:
    """The message for an unknown field, with the fields that may be meant; `before` is put before their names.

    A name without dots is compared with the last parts of the fields; of those of several objectives, one that is
    trained with is meant.
    """
    if not (meant := field_meant(name, all_fields)) and (ending := _fields_ending_in(name, all_fields)):
        several = [field for field in ending if _is_in_use(field, all_fields)] or ending
        return f"could be {', '.join(before + field for field in several)}; give the whole name of one of them"
    last = name.rpartition(".")[2]
    if not (meant := meant or _usual_field(last, all_fields)):
        alike: dict[str, list[str]] = {}
        for field in all_fields:
            alike.setdefault(field.rpartition(".")[2], []).append(field)
        fields = alike[nearest(name, alike)]
        fields = [field for field in fields if _is_in_use(field, all_fields)] or fields
        meant = nearest(name, all_fields if last != name else fields)
    return f"no such field; the nearest one is {before}{meant}"


def _usual_field(last: str, fields: Mapping[str, Any]) -> str:
    """The field that other packages call so; "" if there is none."""
    return next((field for field, names in MEANT.items() if last in names and field in fields), "")


def _fields_ending_in(name: str, fields: Mapping[str, Any]) -> list[str]:
    """The fields whose names end in this one or, if none does, in our word for its last part."""
    section, dot, last = name.rpartition(".")
    ours = section + dot + _usual_field(last, fields).rpartition(".")[2]
    matches = ([field for field in fields if f".{field}".endswith(f".{suffix}")] for suffix in (name, ours))
    return next(filter(None, matches), [])


def _is_in_use(field: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field is not one of an objective with weight 0."""
    section, _, rest = field.partition(".")
    return section != "objective" or bool(fields.get(f"objective.{rest.partition('.')[0]}.weight"))


def _last_of_each_list(argv: Sequence[str], fields: Mapping[str, Any]) -> list[str]:
    """Keeps only the last value of each list, as of any other field; absl would join them."""
    kept: list[list[str]] = []
    places: dict[str, int] = {}
    remaining = iter(argv)
    for arg in remaining:
        name, equals, _ = arg.partition("=")
        field = name.lstrip("-").removeprefix("config.")
        if arg == "--":  # what follows are no flags
            kept.append([arg, *remaining])
        elif name in (f"--config.{field}", f"-config.{field}") and isinstance(fields.get(field), tuple):
            if field in places:
                kept[places[field]] = []
            places[field] = len(kept)
            value = None if equals else next(remaining, None)
            kept.append([arg] if value is None else [arg, value])
        else:
            kept.append([arg])
    return [arg for args in kept for arg in args]


def _split_tuples(config: config_dict.ConfigDict) -> None:
    # `--config.eval.tasks=STS12,STS13` arrives as the tuple ("STS12,STS13",).
    for name, value in config.items():
        if isinstance(value, config_dict.ConfigDict):
            _split_tuples(value)
        elif isinstance(value, tuple):
            config[name] = tuple(part.strip() for item in value for part in str(item).split(",") if part.strip())
