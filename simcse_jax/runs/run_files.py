"""Checks of the JSON in a run's folder: `run.json`, `result.json`, a line of `metrics.jsonl`.

The rest of the code relies on their types.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any

from simcse_jax.config.fields import FIELDS
from simcse_jax.config.recorded import check_names
from simcse_jax.errors import UserError
from simcse_jax.models.config import Dense, LayerNorm, Module, Normalize
from simcse_jax.models.modules import ACTIVATIONS
from simcse_jax.objectives.registry import BUILT_IN

# Fields that do not change the result, so a run may resume with other values.
FREE = (
    *("train.log_every", "train.report_to", "data.local_cache", "teacher.kept", "eval.extra"),
    *("analysis.", "checkpoint.", "parallel."),
)
KEPT = "kept"  # in `model`: the settings that the trained model keeps of its start model (`model.keep_settings`)
KEPT_FIELDS = {"normalize", "default_prompt_name", "similarity", "truncate_dim"}
MODULES = "modules"  # in `model`: what comes after its pooler and head (`model.keep_modules`)
KINDS = {kind.__name__: kind for kind in (Dense, LayerNorm, Normalize)}
TYPES_OF_FIELDS: dict[str, type] = {"activation": str, "size": int, "inputs": int, "bias": bool, "residual": bool}
DEPTH = 8  # of a config; ours have 3 levels
NUMBER = (int, float)
AGAINST_START = "against_start"  # in `result.json`: the comparison of `eval.against_start`
SINGULAR_VALUES = "singular_values"  # in `metrics.jsonl`: of the sentences that `analysis.every` measures
BEST_STEP = "best_step"  # in `result.json`: the step of the checkpoint that has the scores


def plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def check_run(run: dict[str, Any], where: str) -> dict[str, Any]:
    """The contents of a `run.json`, unchanged; refuses a damaged one, and one of a version with other fields."""
    fields = dict(_flat(_part(run, "config", where), "", where))
    check_names(run, [name for name in fields if not _is_from_outside(name)], FIELDS, where)
    for name, value in fields.items():
        _check_field(name, value, where)
    for objective in _part(run["config"], "objective", where):
        if type(fields.get(f"objective.{objective}.weight")) not in NUMBER:
            raise _damage_error(where, f"config.objective.{objective} has no weight")
    length = _part(run, "model", where).get("max_length")
    if type(length) is not int or length < 3:
        raise _damage_error(where, f"model.max_length is {length!r:.60}")
    _check_values(run["model"].get("prompts", {}), "model.prompts", (str,), where)
    kept = run["model"].get(KEPT, {})
    _check_values(kept, f"model.{KEPT}", (str, int, bool, type(None)), where)
    if not {*kept} <= KEPT_FIELDS:
        raise _damage_error(where, f"model.{KEPT} has {', '.join(sorted({*kept} - KEPT_FIELDS))}")
    try:
        read_modules(run)
    except (KeyError, TypeError, ValueError):
        raise _damage_error(where, f"model.{MODULES} is {run['model'][MODULES]!r:.60}") from None
    _check_values(_part(run, "sha256", where), "sha256", (str,), where)
    _check_values(dict.fromkeys(("simcse_jax", "python")) | _part(run, "versions", where), "versions", (str,), where)
    _check_values(dict.fromkeys(("kind", "count")) | _part(run, "device", where), "device", (str, int), where)
    if not isinstance(run.get("hub"), list) or type(run.get("examples")) is not int:
        raise _damage_error(where, "hub is not a list, or examples not a whole number")
    return run


def describe_modules(modules: Iterable[Module]) -> list[dict[str, Any]]:
    """A model's modules as `run.json` has them: the name of each and its fields."""
    return [{"kind": type(module).__name__} | dataclasses.asdict(module) for module in modules]


def read_modules(run: Mapping[str, Any]) -> tuple[Module, ...]:
    """The modules of a run's model.

    Raises:
      KeyError, TypeError, ValueError: where they are damaged.
    """
    return tuple(_module(**fields) for fields in run["model"].get(MODULES, []))


def _module(kind: str, **fields: Any) -> Module:
    for name, value in fields.items():
        expected = TYPES_OF_FIELDS[name]
        fits = type(value) is expected
        if not fits or (expected is int and value < 1):
            raise ValueError
    if fields.get("activation", "Identity") not in ACTIVATIONS:
        raise ValueError
    return KINDS[kind](**fields)


def check_result(result: dict[str, Any], where: str) -> dict[str, Any]:
    """The contents of a `result.json`, unchanged: numbers, and an object with its scores for each task."""
    for name, value in result.items():
        if isinstance(value, dict):
            # A file of pairs may have any name.
            check = _check_task if "spearman" in value else GROUPS.get(name, _check_task)
            check(value, name, where)
        elif name in GROUPS or type(value) not in SINGLE.get(name, (*NUMBER, type(None))):
            raise _damage_error(where, f"{name} is {value!r:.60}")
    return result


def _check_task(scores: dict[str, Any], name: str, where: str) -> None:
    numbers = {part: scores.get(part) for part in ("spearman", "pairs")} | {"pearson": scores.get("pearson", 0.0)}
    _check_values(numbers, name, NUMBER, where)
    for part in ("mean", "wmean"):  # of the subsets
        _check_values(scores.get(part, {}), f"{name}.{part}", NUMBER, where)


def _check_transfer(tasks: dict[str, Any], name: str, where: str) -> None:
    for task in tasks:
        scores = _part(tasks, task, where)
        numbers = {part: scores[part] for part in ("accuracy", "dev_accuracy") if part in scores}
        _check_values(numbers, f"{name}.{task}", NUMBER, where)


def _check_retrieval(tasks: dict[str, Any], name: str, where: str) -> None:
    for task in tasks:
        scores = {part: score for part, score in _part(tasks, task, where).items() if part != "sha256"}
        _check_values({"queries": None, "documents": None} | scores, f"{name}.{task}", NUMBER, where)


def _check_truncated(by_size: dict[str, Any], name: str, where: str) -> None:
    for size in by_size:
        check_result(_part(by_size, size, where), where)


def _check_comparison(numbers: dict[str, Any], name: str, where: str) -> None:
    _check_values({part: numbers.get(part) for part in ("before", "after", "low", "high")}, name, NUMBER, where)


def _check_numbers(numbers: dict[str, Any], name: str, where: str) -> None:
    _check_values(numbers, name, NUMBER, where)


SINGLE = {BEST_STEP: (int,), "transfer_protocol": (str,)}  # values of other kinds than numbers and null
GROUPS: dict[str, Callable[[dict[str, Any], str, str], None]] = {  # of scores in `result.json`
    "transfer": _check_transfer,
    "retrieval": _check_retrieval,
    "retrieval_average": _check_numbers,
    "truncated": _check_truncated,
    AGAINST_START: _check_comparison,
}


def check_line(line: dict[str, Any], where: str) -> dict[str, Any]:
    """A line of metrics, unchanged: its step, numbers or groups of numbers, and a list of singular values."""
    if type(line.get("step")) is not int or not 0 <= line["step"] < 1 << 53:
        raise _damage_error(where, "has no 'step'")
    for name, value in line.items():
        if name == "analysis" or isinstance(value, dict):
            _check_values(value, name, NUMBER, where)
            if not all(-inf < number < inf for number in value.values()):
                raise _damage_error(where, f"{name} has numbers that are not finite")
        elif name == SINGULAR_VALUES:
            if type(value) is not list or not all(type(number) in NUMBER and 0 <= number < inf for number in value):
                raise _damage_error(where, f"{name} is {value!r:.60}")
        elif type(value) not in NUMBER:
            raise _damage_error(where, f"{name} is {value!r:.60}")
    return line


def _check_field(name: str, value: Any, where: str) -> None:
    if name not in FIELDS:
        return
    field = FIELDS[name]
    expected: type = list if isinstance(field.default, tuple) else type(field.default)
    fits = type(value) is expected or (expected is float and type(value) is int)
    if not fits or (expected is list and not all(isinstance(item, str) for item in value)):
        raise _damage_error(where, f"config.{name} is {value!r:.60}")
    for rule in field.rules:
        try:
            rule.check(name, value)
        except UserError as error:
            raise _damage_error(where, f"config.{error}") from None


def _is_from_outside(field: str) -> bool:
    """Whether it is a field of an objective that is not the package's."""
    section, _, name = field.partition(".")
    return section == "objective" and name.partition(".")[0] not in BUILT_IN


def _flat(section: Mapping[str, Any], prefix: str, where: str) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if "." in name or prefix.count(".") > DEPTH:
            raise _damage_error(where, f"config.{prefix}{name} is not the name of a field")
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.", where)
        else:
            yield prefix + name, value


def _part(whole: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    part = whole.get(name)
    if not isinstance(part, dict):
        raise _damage_error(where, f"has no object {name!r}")
    return part


def _check_values(part: Any, name: str, kinds: tuple[type, ...], where: str) -> None:
    if not isinstance(part, dict):
        raise _damage_error(where, f"{name} is {part!r:.60}, not an object")
    for key, value in part.items():
        if type(value) not in kinds:
            raise _damage_error(where, f"{name}.{key} is {value!r:.60}")


def _damage_error(where: str, problem: str) -> UserError:
    return UserError(f"{where}: damaged: {problem}")
