"""The commands from Python: `train` and the `Run` that it returns, and `sweep`."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import config_dict

from simcse_jax.choices import pooler_of
from simcse_jax.commands.sweep import make_table
from simcse_jax.config.checks import check_field, validate
from simcse_jax.config.fields import declared_fields, flatten, make_defaults
from simcse_jax.config.flags import (
    changed_from,
    fields_meant,
    is_of_package,
    leave_out_missing_scores,
    load_config,
    no_such_field,
)
from simcse_jax.config.loss_fields import fields_of_objectives
from simcse_jax.config.recipes import report_mistakes
from simcse_jax.config.sections import Section
from simcse_jax.data.in_memory import write_examples
from simcse_jax.errors import UserError
from simcse_jax.host import progress
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.storage import as_path, is_remote, local_path
from simcse_jax.objectives.registry import OBJECTIVES, add
from simcse_jax.runs.workdir import Workdir
from simcse_jax.simcse import SimCSE
from simcse_jax.training.run import sources, train_and_evaluate
from simcse_jax.training.sweeps.over import make_sweep
from simcse_jax.training.sweeps.variants import FIELDS as SWEEP_FIELDS

DATA, EVAL = "data.parquet", "eval.parquet"  # in the workdir, for data that a program has in memory
Callback = Callable[[int, Mapping[str, float]], object]


class Run:
    """A run's folder: its config, its metrics, its scores and its model. `Run("runs/mine")` opens one."""

    def __init__(self, workdir: str | Path):
        """Opens the folder.

        Raises:
          UserError: when it has no run.
        """
        self.workdir = str(workdir)
        self._folder = Workdir(as_path(self.workdir))
        self._folder.check_exists(self.workdir)

    def __repr__(self) -> str:
        return f"Run({self.workdir!r})"

    @property
    def config(self) -> Section:
        """All fields: `config.train.batch_size`, or `config["train.batch_size"]`; `config.to_dict()` is a copy."""
        return Section.of(self._folder.read_run()["config"])

    @property
    def scores(self) -> dict[str, Any]:
        """The scores of `result.json`; empty if there are none."""
        return self._folder.read_result() or {}

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, each with its `step`; `pandas.DataFrame(run.metrics)` is a table of them."""
        return self._folder.read_metrics()

    @functools.cached_property
    def model(self) -> SimCSE:
        """The best checkpoint."""
        return SimCSE(self.workdir)


def train(
    recipe: str | Path | config_dict.ConfigDict = "unsup_bert",
    *,
    workdir: str | Path,
    data: Any = None,
    model: str | Path | None = None,
    eval: Any = None,
    objective: Any = None,
    callbacks: Sequence[Callback] = (),
    **fields: Any,
) -> Run:
    """Trains a sentence encoder, as `simcse-jax train` does; the same call resumes a run that was stopped.

        run = train("tune", workdir="runs/mine", data=[("a", "b"), …], model="sentence-transformers/all-MiniLM-L6-v2")
        run.scores, run.model.encode(["A sentence."])

    Args:
      recipe: the name of a recipe, a config file, the `run.json` of a run, or a config.
      workdir: where checkpoints, metrics and scores go.
      data: a source as for `data.train`; or sentences, tuples of two or three sentences, of two and a score or a label,
        or of one and its class as a number, dictionaries, or a table (pandas, Polars, Arrow, DuckDB, datasets, a
        dictionary of columns). What is in memory is written to `data.parquet` in the workdir, that of an iterator as it
        comes.
      model: the model to start from, as for `model.init_from`.
      eval: a file or folder as for `eval.data`; or pairs with scores, as for `data`, written to `eval.parquet`. Empty:
        nothing is scored.
      objective: the only term of the loss: the name of one of the package's, or a subclass of
        `simcse_jax.objectives.objective.Objective`, which must be given again to resume.
      callbacks: called as `callback(step, scores)` after each evaluation. What they raise ends the run.
      **fields: other fields by their names, or the last part of it where only one field ends so: `batch_size=64`,
        `learning_rate=3e-5`, `**{"objective.info_nce.temperature": 0.05}`.

    Returns:
      The finished run.

    Raises:
      UserError: in one line, for any mistake in a field, the data or the workdir. Until all checks are done nothing is
        written but data in memory.
      Preempted, KeyboardInterrupt: for SIGTERM and Ctrl-C, after saving.
    """
    config, complete, name = _load_recipe(recipe)
    usual = flatten(config)
    user_fields = _collect_fields(config, data, model, eval, objective, fields)
    for field, value in user_fields.items():
        set_field(config, field, value)
    if not is_remote(str(workdir)):
        output_folder(str(workdir), option="workdir")
    for field, value, file in (("data.train", data, DATA), ("eval.data", eval, EVAL)):
        if value is not None and not isinstance(value, str | Path):
            user_fields[field] = _write_data(value, workdir, field, file)
            set_field(config, field, user_fields[field])
    with report_mistakes(name):
        complete(config, {*user_fields})
    if isinstance(recipe, str | Path) and is_of_package(str(recipe)):
        leave_out_missing_scores(config, {*user_fields})
    checked = validate(config)
    if not is_remote(str(workdir)):
        output_folder(str(workdir), sources(checked), option="workdir")
    train_and_evaluate(checked, str(workdir), callbacks=callbacks, recipe=changed_from(name, usual, config))
    return Run(workdir)


def sweep(
    recipe: str,
    *,
    workdir: str | Path,
    over: Mapping[str, Sequence[Any]] | None = None,
    data: str | Path | None = None,
    model: str | Path | None = None,
    eval: str | Path | None = None,
    **fields: Any,
) -> Path:
    """Trains the rows of a table with every seed, as `simcse-jax sweep` does.

    Args:
      recipe: one with rows, such as `ablations/simcse_table3`; with `over`, any.
      workdir: where the runs and the table go.
      over: the rows: by the names of fields, their values; each value meets each other one. `"0.05=usual"` is a value
        with the row's label.
      data, model, eval: as for `train`, but by name: a table is not made of data in memory.
      **fields: other fields, as for `train`; also those of the table, such as `**{"sweep.seeds": [42, 43]}` (three
        seeds by default).

    Returns:
      The table, a Markdown file; next to it are the same as .csv, .png and .svg.

    Raises:
      UserError: as `train`; also when a run has failed.
    """
    for short, value in {"data": data, "eval": eval}.items():
        if not isinstance(value, str | Path | None):
            raise UserError(f"{short}: a sweep takes the name of a file or folder, not {type(value).__name__}")
    config, complete = load_config(recipe)
    declared = _with_weights(config, fields)
    rows = {_full_name(name, declared): values for name, values in (over or {}).items()}
    if rows:
        make_sweep(config, rows)
    user_fields = _collect_fields(config, data, model, eval, None, fields)
    for field, value in user_fields.items():
        set_field(config, field, value)
    with report_mistakes(recipe):
        complete(config, {*user_fields})
    options = {"workdir": workdir, "over": over, "data": data, "model": model, "eval": eval}
    return make_table(recipe, config, rows, str(workdir), _quote_call(recipe, options, fields))


def _quote_call(recipe: str, options: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """The call of `sweep` with these arguments, those that are None left out."""
    arguments = [repr(recipe)]
    for name, value in options.items():
        if value is not None:
            arguments.append(f"{name}={str(value) if isinstance(value, Path) else value!r}")
    arguments += [f"**{fields}"] if fields else []
    return f"simcse_jax.sweep({', '.join(arguments)})"


def _full_name(name: str, declared: Mapping[str, Any]) -> str:
    """The field that a name or its last part means.

    Raises:
      UserError: when there is none, or one of several could be meant.
    """
    meant = [name] if name in declared else fields_meant(name, declared)
    if len(meant) != 1:
        raise UserError(f"{name}: {no_such_field(name, declared)}")
    return meant[0]


def set_field(config: config_dict.ConfigDict, name: str, value: Any) -> None:
    """Sets a field of a config by its dotted name, in the type that it has.

    Raises:
      UserError: when there is no such field, or the value is not of its type or within its bounds.
    """
    declared = {**declared_fields(config), **(SWEEP_FIELDS if "sweep" in config else {})}
    if name not in declared:
        raise UserError(f"{name}: {no_such_field(name, flatten(config))}")
    default = declared[name].default
    if isinstance(default, tuple) and not isinstance(value, str) and hasattr(value, "__iter__"):
        value = tuple(map(str, value))
    elif isinstance(default, str) and isinstance(value, Path):
        value = str(value)
    elif isinstance(default, float) and type(value) is int:
        value = float(value)
    if name.endswith(".pooler") and isinstance(value, str):
        value = pooler_of(value)
    check_field(name, value, declared[name])
    config.update_from_flattened_dict({name: value})


def _load_recipe(
    recipe: str | Path | config_dict.ConfigDict,
) -> tuple[config_dict.ConfigDict, Callable[..., None], str]:
    """A copy of the config, the function that completes it, and its name for errors."""
    if isinstance(recipe, config_dict.ConfigDict):
        return config_dict.ConfigDict(recipe.to_dict()), lambda config, user_fields: None, "the config"
    return *load_config(str(recipe)), str(recipe)


def _collect_fields(
    config: config_dict.ConfigDict, data: Any, model: Any, eval: Any, objective: Any, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The values by dotted names; those in memory are left out. Says which fields the last parts of names mean."""
    user_fields: dict[str, Any] = {}
    if objective is not None:
        user_fields |= _weights_of_only(config, objective)
    for name, value in {"data.train": data, "model.init_from": model, "eval.data": eval}.items():
        if isinstance(value, str | Path):
            user_fields[name] = str(value)
    if model is not None and "model.init_from" not in user_fields:
        raise UserError(f"model {model!r:.60}: must be a name or a folder")
    declared = _with_weights(config, {**user_fields, **fields})
    meant = {name: _full_name(name, declared) for name in fields}
    if short := [full for name, full in meant.items() if full != name]:
        progress.write(f"set: {', '.join(short)}")
    for name, value in fields.items():
        full = meant[name]
        if full in user_fields and user_fields[full] != value:
            raise UserError(f"{name}: {full} is given twice")
        user_fields[full] = value
    return user_fields


def _with_weights(config: config_dict.ConfigDict, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The config's values by dotted names, with those of `fields` that have whole names, such as objectives' weights.

    What a short name means depends on them.
    """
    values = flatten(config)
    return values | {name: value for name, value in fields.items() if name in values}


def _weights_of_only(config: config_dict.ConfigDict, objective: Any) -> dict[str, Any]:
    """The weights with which an objective is the only term."""
    if isinstance(objective, str) and objective in OBJECTIVES:
        name = objective
    else:
        added = add(type(objective) if not isinstance(objective, type | str) else objective)
        name = added.name
        if name not in config.objective:
            config.objective[name] = make_defaults(fields_of_objectives([added])).objective[name]
    return {f"objective.{other}.weight": float(other == name) for other in config.objective}


def _write_data(value: Any, workdir: str | Path, field: str, file: str) -> str:
    """The path of a file in the workdir with what a program has in memory; a run that is there must have it already."""
    if is_remote(str(workdir)):
        raise UserError(f"workdir {workdir}: {field} in memory is written to a disk; write it to a file, and name that")
    path = local_path(str(workdir)) / file
    used = Workdir(path.parent).exists
    if used and not path.exists():
        raise UserError(f"workdir {workdir}: has a run on other data; choose another, or remove this one")
    write_examples(value, path, field.partition(".")[0], used)
    return str(path)
