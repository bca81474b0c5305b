"""A sweep: a base config, the rows of its table as changes to it, and the seeds that each row is run with.

A file of `configs/ablations/` has two functions: `get_config() -> ConfigDict`, the base with `config.sweep` from
`sweep_defaults`, and `get_variants() -> tuple[Variant, ...]`, the rows. Both take the config's argument
(`configs/ablations/x.py:ARGUMENT`) where there is one. Fields set on the command line change the base; those of a
variant override them. A row that trains another recipe takes its fields from there: `as_recipe`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ml_collections import config_dict

from simcse_jax.choices import RETRIEVAL
from simcse_jax.config.checks import check_field, check_type, validate
from simcse_jax.config.fields import default_config, flatten, make_defaults
from simcse_jax.config.flags import no_such_field
from simcse_jax.config.recipes import run_recipe
from simcse_jax.config.recorded import is_record
from simcse_jax.config.sections import Config, Section
from simcse_jax.errors import UserError, about, nearest, no_such
from simcse_jax.field import Field, Rule, each_once, field
from simcse_jax.training.sweeps.metrics import METRICS, WORDS, is_development, share_data

LARGEST_SEED = 2**32 - 1


class Variant(NamedTuple):
    """One row of the table."""

    name: str  # also of its runs' folder, and for config.sweep.only
    fields: dict[str, Any]  # dotted name of a field to its value
    paper: Mapping[str, float] = MappingProxyType({})  # metric to the paper's value, where it gives one
    baseline: str = ""  # the name of the variant it is compared with; empty: the sweep's
    quoted: bool = False  # another system, of which the table has the paper's numbers alone; nothing is run
    chosen_on: tuple[str, ...] = ()  # the metrics by which its reading or its rate was chosen


def _check_metrics(where: str, metrics: Sequence[str]) -> None:
    if not metrics:
        raise UserError(f"{where}: there are none; known are {WORDS}")
    each_once("metric", METRICS).check(where, metrics)


def _parse_seeds(where: str, texts: Sequence[object]) -> tuple[int, ...]:
    seeds = []
    for text in texts:
        try:
            seeds.append(int(str(text)))
        except ValueError:
            raise UserError(f"{where}: {text!r:.60} is not an integer") from None
        if not 0 <= seeds[-1] <= LARGEST_SEED:
            raise UserError(f"{where}: {text} must be from 0 to 2³² - 1")
    if not seeds:
        raise UserError(f"{where}: there are none; set e.g. --{where}=42,43,44")
    if repeated := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise UserError(f"{where}: {repeated[0]} is given twice; runs of the same seed are the same run")
    return tuple(seeds)


# The fields of `config.sweep`. Each file sets the first four; `read_sweep` makes the checks that need its variants.
FIELDS: dict[str, Field] = {
    "sweep.title": field("", "Of the table."),
    "sweep.source": field("", "The table's place in a paper, e.g. SimCSE, Table 3."),
    "sweep.metrics": field((), "The columns.", Rule(WORDS, _check_metrics)),
    "sweep.baseline": field("", "The variant that the others are compared with."),
    "sweep.seeds": field(
        (42, 43, 44),
        "Each variant is run with each of these.",
        Rule("integers from 0 to 2³² - 1, each once", _parse_seeds),
    ),
    "sweep.only": field("", "The variants to run, separated by commas; empty: all."),
    "sweep.report_once": field(
        (),
        "Of the columns, those of test sets that no choice has seen; no row may be chosen on them.",
        Rule(WORDS, each_once("metric", METRICS).check),
    ),
    "sweep.run": field(
        True, "False: runs nothing, and the table has what is finished, for example on several machines."
    ),
}


def sweep_defaults(title: str, source: str, metrics: tuple[str, ...], baseline: str) -> config_dict.ConfigDict:
    """The fields of `config.sweep`.

    Args:
      title: of the table.
      source: the table's place in a paper, e.g. "SimCSE, Table 3".
      metrics: the columns, by the names of `sweeps.metrics`.
      baseline: the name of the variant that the others are compared with.
    """
    sweep = make_defaults(FIELDS).sweep
    sweep.update(title=title, source=source, metrics=metrics, baseline=baseline)
    return sweep


def as_recipe(recipe: config_dict.ConfigDict, base: config_dict.ConfigDict) -> dict[str, Any]:
    """The fields of a row that trains as a recipe does, and is scored on the tasks of its table.

    Args:
      recipe: from the recipe's `get_config`.
      base: the table's, from its own.

    Returns:
      Name to value of the fields in which they differ; those of transfer and retrieval tasks stay the table's, and the
      choice of the checkpoint where it is by retrieval.
    """
    tables = flatten(base)
    chooses = ("eval.development",) if RETRIEVAL in (recipe.eval.development, base.eval.development) else ()
    of_table = ("eval.transfer", "eval.retrieval.", *chooses)
    return {
        name: value
        for name, value in flatten(recipe).items()
        if value != tables[name] and not name.startswith(of_table)
    }


def load_variants(path: str) -> tuple[Variant, ...]:
    """The rows of a sweep's file, by its name on the command line: `FILE` or `FILE:ARGUMENT`."""
    if is_record(path):
        raise UserError(f"--config {path}: repeats one run; for a table give a sweep, or a field with --over")
    with run_recipe(path) as (module, argument):
        if not hasattr(module, "get_variants"):
            raise UserError(f"--config {path}: is not a sweep: it has no get_variants(); see configs/ablations/")
        variants = tuple(module.get_variants(*argument))
    return variants


def read_seeds(sweep: Config) -> tuple[int, ...]:
    """The seeds as integers: those of the command line arrive as text."""
    return _parse_seeds("config.sweep.seeds", sweep.seeds)


def read_sweep(config: config_dict.ConfigDict, variants: Sequence[Variant]) -> list[tuple[Variant, Section]]:
    """The variants to run, each with its whole config: the base without `sweep`, the variant's fields laid over."""
    if "sweep" not in config:
        raise UserError("config.sweep is missing: this config is not a sweep; see configs/ablations/")
    sweep = config.sweep
    for name, declared in FIELDS.items():
        check_field(f"config.{name}", sweep[name.removeprefix("sweep.")], declared)
    if config.seed != default_config().seed:
        raise UserError(f"config.seed={config.seed}: a sweep's runs have the seeds of config.sweep.seeds; set that")
    chosen = _choose(sweep, variants)
    return [(variant, _apply_variant(config, variant)) for variant in chosen]


def find_baseline(variant: Variant, sweep: Config) -> str:
    """The name of the variant that it is compared with."""
    return variant.baseline or sweep.baseline


def _choose(sweep: config_dict.ConfigDict, variants: Sequence[Variant]) -> list[Variant]:
    names = [variant.name for variant in variants]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"variant {name!r}: two variants have that name")
    for variant in variants:
        for claim, metrics in (("the paper's values", variant.paper), ("what it was chosen on", variant.chosen_on)):
            for metric in metrics:
                if metric not in METRICS:
                    raise no_such(f"variant {variant.name!r}: {claim}", "metric", metric, METRICS)
    _check_held_out(sweep, variants)
    only = [name.strip() for name in sweep.only.split(",") if name.strip()]
    for name in only:
        if name not in names:
            raise UserError(f"config.sweep.only: no variant {name!r}; the nearest one is {nearest(name, names)!r}")
    chosen = [variant for variant in variants if not only or variant.name in only]
    run = [variant.name for variant in chosen if not variant.quoted]
    for variant in chosen:
        baseline = find_baseline(variant, sweep)
        if not variant.quoted and baseline not in run:
            known = [other.name for other in variants if not other.quoted]
            raise UserError(
                f"variant {variant.name!r}: its baseline {baseline!r} is none of the rows that are run; the nearest is "
                f"{nearest(baseline, known)!r} (config.sweep.baseline, and config.sweep.only chooses rows)"
            )
    return chosen


def _check_held_out(sweep: config_dict.ConfigDict, variants: Sequence[Variant]) -> None:
    for metric in sweep.report_once:
        where = f"config.sweep.report_once: {metric}"
        if metric not in sweep.metrics:
            raise UserError(f"{where} is not a column; add it to config.sweep.metrics")
        if is_development(metric):
            raise UserError(f"{where} is of a development set, which is there to choose on; name test sets")
        for variant in variants:
            if any(share_data(metric, other) for other in variant.chosen_on):
                raise UserError(f"{where} has been seen: variant {variant.name!r} was chosen on it")


def _apply_variant(config: config_dict.ConfigDict, variant: Variant) -> Section:
    resolved = config.copy_and_resolve_references().unlock()
    del resolved["sweep"]
    fields = flatten(resolved)
    for name, value in variant.fields.items():
        if name not in fields:
            raise UserError(f"variant {variant.name!r}: config.{name}: {no_such_field(name, fields, 'config.')}")
        if name == "seed":
            raise UserError(f"variant {variant.name!r}: config.seed is set by config.sweep.seeds")
        expected = type(fields[name])
        check_type(f"variant {variant.name!r}: config.{name}", value, expected)
        value = expected(value)
        *path, last = name.split(".")
        term = resolved
        for part in path:
            term = term[part]
        term[last] = value
    with about(f"variant {variant.name!r}"):
        return validate(resolved)
