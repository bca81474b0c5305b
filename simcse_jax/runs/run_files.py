"""The JSON in a run's folder: `run.json` with its format, and names in it and in `result.json` and `metrics.jsonl`."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from simcse_jax.config.fields import FIELDS, flatten
from simcse_jax.config.recorded import check_names
from simcse_jax.host.storage import Folder, other_format, read_json
from simcse_jax.models.config import Dense, LayerNorm, Module, Normalize
from simcse_jax.objectives.registry import BUILT_IN

FORMAT = 1  # of a run's folder, in `run.json`
# Fields that do not change the result, so a run may resume with other values.
FREE = (
    *("train.log_every", "train.report_to", "data.local_cache", "teacher.kept", "eval.extra"),
    *("analysis.", "checkpoint.", "parallel."),
)
KEPT = "kept"  # in `model`: the settings that the trained model keeps of its start model (`model.keep_settings`)
KEPT_FIELDS = {"normalize", "default_prompt_name", "similarity", "truncate_dim"}
MODULES = "modules"  # in `model`: what comes after its pooler and head (`model.keep_modules`)
KINDS = {kind.__name__: kind for kind in (Dense, LayerNorm, Normalize)}
AGAINST_START = "against_start"  # in `result.json`: the comparison of `eval.against_start`
SINGULAR_VALUES = "singular_values"  # in `metrics.jsonl`: of the sentences that `analysis.every` measures
FOLDS_FILE = "folds.json"  # of the folds that are finished
EXAMPLES_FILE = "examples.json"  # a few rows that were not trained on, before and after, for the report
RECIPE = "recipe"  # in `run.json`: its name, and its values of the fields that differ
BEST_STEP = "best_step"  # in `result.json`: the step of the checkpoint that has the scores


def plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def read_run(file: Folder) -> dict[str, Any]:
    """The contents of a `run.json`; refuses one of a version with another format or other fields."""
    run = read_json(file)
    if run.get("format") != FORMAT:
        raise other_format(file, run, "use that version, or train again")
    built_in = [name for name in flatten(run["config"]) if not _is_from_outside(name)]
    check_names(run, built_in, FIELDS, str(file))
    return run


def describe_modules(modules: Iterable[Module]) -> list[dict[str, Any]]:
    """A model's modules as `run.json` has them: the name of each and its fields."""
    return [{"kind": type(module).__name__} | dataclasses.asdict(module) for module in modules]


def read_modules(run: Mapping[str, Any]) -> tuple[Module, ...]:
    """The modules of a run's model."""
    described = (dict(fields) for fields in run["model"].get(MODULES, []))
    return tuple(KINDS[fields.pop("kind")](**fields) for fields in described)


def _is_from_outside(field: str) -> bool:
    """Whether it is a field of an objective that is not the package's."""
    section, _, name = field.partition(".")
    return section == "objective" and name.partition(".")[0] not in BUILT_IN
