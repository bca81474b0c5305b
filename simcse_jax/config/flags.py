"""The command line of a run: `--config FILE[:VARIANT] --workdir DIR [--config.FIELD=VALUE …]`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_dict, config_flags

from simcse_jax.config.fields import flatten
from simcse_jax.errors import UserError, nearest

FOLDERS = {
    "workdir": "where checkpoints, metrics and results go",
    "profile": "where a trace of a few steps goes",
}


def parse(argv: Sequence[str], needs_workdir: bool = True) -> tuple[config_dict.ConfigDict, str]:
    """Reads `--config FILE --workdir DIR [--config.FIELD=VALUE …]`.

    Returns:
      The config, and the workdir (empty where none is needed).

    Raises:
      UserError: for whatever is wrong with flags, file or values; an unknown field's nearest known one is named.
    """
    config, folders = _parse(argv, ("workdir",) if needs_workdir else ())
    return config, folders.get("workdir") or ""


def parse_run(argv: Sequence[str]) -> tuple[config_dict.ConfigDict, str, str | None]:
    """As `parse`; the third is what `--profile DIR` names, which is no part of the config: it changes nothing."""
    config, folders = _parse(argv, tuple(FOLDERS))
    return config, folders["workdir"] or "", folders["profile"]


def _parse(argv: Sequence[str], folders: Sequence[str]) -> tuple[config_dict.ConfigDict, dict[str, str | None]]:
    """The config and the named flags of `FOLDERS`."""
    values = flags.FlagValues()
    args = ["simcse_jax.main", *argv]
    help_text = "a recipe, e.g. configs/unsup_bert.py or configs/unsup_bert.py:large"
    path = config_path(argv)
    if not path:
        raise UserError("--config FILE is missing, e.g. --config configs/unsup_bert.py")
    known = flatten(_get_config(path))
    try:
        config_flags.DEFINE_config_file("config", None, help_text, flag_values=values, sys_argv=args)
        for name in folders:
            flags.DEFINE_string(name, None, FOLDERS[name], flag_values=values)
        rest = values(args)[1:]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, flags.Error) as error:
        raise UserError(_unknown_field(argv, known) or str(error)) from None
    if "workdir" in folders and not values.workdir:
        raise UserError(f"--workdir DIR is missing: {FOLDERS['workdir']}")
    if "profile" in folders and values.profile == "":
        raise UserError("--profile: name a folder")
    if rest:
        raise UserError(f"unknown argument {rest[0]!r}; a field is set with --config.FIELD=VALUE")
    config = values.config.unlock()
    _split_tuples(config)
    return config, {name: values[name].value for name in folders}


def config_path(argv: Sequence[str]) -> str:
    """What `--config` names, empty where there is none."""
    for position, arg in enumerate(argv):
        name, equals, value = arg.partition("=")
        if name in ("--config", "-config"):
            return value if equals else (argv[position + 1] if position + 1 < len(argv) else "")
    return ""


def _get_config(path: str) -> config_dict.ConfigDict:
    """Loads a config file alone, to tell its mistakes from those of the command line."""
    values = flags.FlagValues()
    args = ["simcse_jax.main", f"--config={path}"]
    file = path.partition(":")[0]
    if not Path(file).is_file():
        raise UserError(f"--config {file}: no such config file")
    try:
        config_flags.DEFINE_config_file("config", None, flag_values=values, sys_argv=args)
        values(args)
    except UserError:
        raise
    except Exception as error:  # the file is a program: anything can go wrong in it
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        kind = "" if isinstance(error, flags.Error) else f"{type(error).__name__}: "
        raise UserError(f"--config {path}: {kind}{reason}") from None
    if not isinstance(values.config, config_dict.ConfigDict):
        raise UserError(f"--config {path}: get_config must return a ConfigDict (see simcse_jax.config.default_config)")
    return values.config


def _unknown_field(argv: Sequence[str], known: Mapping[str, Any]) -> str | None:
    for arg in argv:
        name = arg.lstrip("-").partition("=")[0]
        if name.startswith("config.") and name.removeprefix("config.") not in known:
            name = name.removeprefix("config.")
            return f"--config.{name}: no such field; the nearest one is --config.{nearest(name, known)}"
    return None


def _split_tuples(config: config_dict.ConfigDict) -> None:
    # `--config.eval.tasks=STS12,STS13` reaches us as the tuple ("STS12,STS13",).
    for name, value in config.items():
        if isinstance(value, config_dict.ConfigDict):
            _split_tuples(value)
        elif isinstance(value, tuple):
            config[name] = tuple(part.strip() for item in value for part in str(item).split(",") if part.strip())
