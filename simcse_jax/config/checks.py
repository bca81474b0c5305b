"""What the fields of a run may be, and which of them have no effect."""

from collections.abc import Callable

from ml_collections import config_dict

from simcse_jax.config.fields import (
    CONTRASTIVE,
    DTYPES,
    FEWEST_ANALYSED,
    MOST_ARTIFICIAL,
    POLICIES,
    POSTPROCESSING,
    PRECISIONS,
    READINGS,
    default_config,
    flatten,
    trains,
)
from simcse_jax.data.augment import AUGMENTATIONS
from simcse_jax.data.examples import POSITIVES
from simcse_jax.errors import UserError, nearest
from simcse_jax.evaluation.tasks import TASKS
from simcse_jax.models.config import POOLERS
from simcse_jax.models.head import HEADS


def validate(config: config_dict.ConfigDict) -> None:
    """Checks every field that can be checked without reading anything.

    Raises:
      UserError: naming the field, its value and what it may be.
    """
    default, given = flatten(default_config()), flatten(config)
    if "sweep" in config:
        raise UserError("config.sweep: this config is a sweep; run it with python -m simcse_jax.sweep")
    for name in given:
        if name not in default:
            raise UserError(f"config.{name}: no such field; the nearest one is config.{nearest(name, default)}")
    if missing := [name for name in default if name not in given]:
        raise UserError(f"config.{missing[0]} is missing; start a config from simcse_jax.config.default_config()")

    for name, value in given.items():
        expected = type(default[name])
        if type(value) is not expected and not (expected is float and type(value) is int):
            raise UserError(f"config.{name}={value!r}: must be of type {expected.__name__}")

    def check(field: str, holds: bool, expected: str) -> None:
        if not holds:
            raise UserError(f"config.{field}={given[field]!r}: must be {expected}")

    for field in ("model.num_layers", "train.max_steps", "checkpoint.keep_every", "analysis.every"):
        check(field, given[field] >= 0, "0 or more")
    for field in ("parallel.devices", "parallel.chunk_size", "parallel.processes", "parallel.process_id"):
        check(field, given[field] >= 0, "0 or more")
    for field in ("train.epochs", "eval.postprocess_dimensions"):
        check(field, given[field] >= 0, "0 or more")
    for field in ("train.log_every", "eval.every"):
        check(field, given[field] >= 1, "1 or more")
    for field in ("train.weight_decay", "train.max_grad_norm"):
        check(field, 0 <= given[field] < float("inf"), "0.0 or more")
    check("seed", 0 <= config.seed < 2**32, "from 0 to 2³² - 1")
    check("model.init_from", bool(config.model.init_from), "a folder, a hub id or package:NAME")
    check("model.pooler", config.model.pooler in POOLERS, f"one of {', '.join(POOLERS)}")
    check("model.mlp", config.model.mlp in HEADS, f"one of {', '.join(HEADS)}")
    check("model.dropout", 0 <= config.model.dropout < 1, "at least 0 and below 1")
    if config.model.pooler == "cls_before_pooler" and HEADS[config.model.mlp].trained:
        raise UserError(
            f"config.model.mlp={config.model.mlp!r}: the pooler cls_before_pooler never has a head; "
            "set model.mlp=none, or model.pooler=cls"
        )
    check("train.batch_size", config.train.batch_size >= 2, "2 or more (the others of a batch are the negatives)")
    check("train.dtype", config.train.dtype in DTYPES, f"one of {', '.join(DTYPES)}")
    check("train.matmul_precision", config.train.matmul_precision in PRECISIONS, f"one of {', '.join(PRECISIONS)}")
    parallel = config.parallel
    if parallel.processes > 1:
        check("parallel.process_id", parallel.process_id < parallel.processes, f"below {parallel.processes}")
        port = parallel.coordinator.rpartition(":")[2]
        check("parallel.coordinator", port.isdigit() and ":" in parallel.coordinator, "HOST:PORT of process 0")
    check("train.learning_rate", 0 < config.train.learning_rate < float("inf"), "above 0")
    _check_data(config, check)
    _check_objectives(config, check)
    for task in config.eval.tasks:
        if task not in TASKS:
            raise UserError(f"config.eval.tasks: no task {task!r}; the nearest one is {nearest(task, TASKS)}")
        if config.eval.tasks.count(task) > 1:
            raise UserError(f"config.eval.tasks: {task} comes twice; name each task once, in one list with commas")
    check_postprocess(*(config.eval[name] for name in _POSTPROCESS), "config.eval.postprocess", "_")
    least = FEWEST_ANALYSED
    check("analysis.sentences", config.analysis.sentences >= least, f"{least} or more (tokens must occur in several)")
    if config.analysis.every and not config.analysis.data and not config.eval.data:
        raise UserError("config.analysis.data: must be set, a file of sentences, since eval.data is empty")


Check = Callable[[str, bool, str], None]


_POSTPROCESS = ("postprocess", "postprocess_data", "postprocess_dimensions")


def check_postprocess(method: str, data: str, dimensions: int, field: str, joint: str) -> None:
    """Checks what can be checked of a post-processing without reading anything.

    `field` is what the user has set `method` by, `field + joint + "data"` and `… "dimensions"` the others.

    Raises:
      UserError: naming the field.
    """
    if method and method not in POSTPROCESSING:
        raise UserError(f"{field}: no method {method!r}; the nearest one is {nearest(method, POSTPROCESSING)}")
    data_field, dimensions_field = f"{field}{joint}data", f"{field}{joint}dimensions"
    if method and not data:
        raise UserError(f"{data_field}: must be set for {method}: a file of sentences, or target")
    if data and not method:
        raise UserError(f"{data_field}={data}: has no use without {field}={' or '.join(POSTPROCESSING)}")
    if dimensions < 0 or (dimensions and method != "whitening"):
        raise UserError(f"{dimensions_field}={dimensions}: must be 0, or above it for {field}=whitening")


def _check_data(config: config_dict.ConfigDict, check: Check) -> None:
    data, augment = config.data, config.data.augment
    check("data.train", bool(data.train), "a file, hf:NAME or tfds:NAME")
    check("data.max_length", data.max_length >= 3, "3 or more (two of them are special tokens)")
    check("data.subsample", data.subsample >= 0, "0 or more")
    columns = data.columns
    if (columns.positive or columns.negative or columns.neutral) and not columns.anchor:
        raise UserError("config.data.columns.anchor: must be set too once another column is")
    for earlier, later in (("positive", "negative"), ("negative", "neutral")):
        if columns[later] and not columns[earlier]:
            raise UserError(f"config.data.columns.{earlier}: must be set too, since data.columns.{later} is")
    check("data.positives", data.positives in ("", *POSITIVES), f"empty or one of {', '.join(POSITIVES)}")
    check("data.augment.name", augment.name in ("", *AUGMENTATIONS), f"empty or one of {', '.join(AUGMENTATIONS)}")
    check("data.augment.percent", 0 < augment.percent < 100, "above 0 and below 100")
    if augment.name and data.positives:
        raise UserError(
            f"config.data.augment.name={augment.name!r} makes the positives, and so does "
            f"data.positives={data.positives!r}; set one of them"
        )
    for name, field in (("synonym", "lexicon"), ("mlm", "mlm_model")):
        if augment.name == name and not augment[field]:
            raise UserError(f"config.data.augment.{field}: must be set for data.augment.name={name}")


def _check_objectives(config: config_dict.ConfigDict, check: Check) -> None:
    objective = config.objective
    for name, term in objective.items():
        for field, value in term.items():
            if field == "temperature":
                check(f"objective.{name}.{field}", 0 < value < float("inf"), "above 0")
            elif isinstance(value, float | int) and not isinstance(value, bool):
                check(f"objective.{name}.{field}", 0 <= value < float("inf"), "0 or more")
    check("objective.off_dropout.m", objective.off_dropout.m > 0, "above 0 (at 0 there is nothing to learn)")
    artificial = objective.barlow_twins.artificial
    check("objective.barlow_twins.artificial", artificial <= MOST_ARTIFICIAL, f"at most {MOST_ARTIFICIAL}")
    check("objective.info_nce.similarity", objective.info_nce.similarity in ("cosine", "dot"), "cosine or dot")
    check("objective.dimension_wise.reading", objective.dimension_wise.reading in READINGS, " or ".join(READINGS))
    if not any(term.weight for term in objective.values()):
        raise UserError("config.objective: every term has weight 0.0, so there is nothing to train")
    for field in ("positive", "negative"):
        check(f"views.{field}", config.views[field] in POLICIES, f"one of {', '.join(POLICIES)}")
    check("views.noise", 0 <= config.views.noise < float("inf"), "0.0 or more")
    check("views.samples", config.views.samples >= 1, "1 or more")
    if not objective.softmax_nli.weight:
        return
    positives = config.data.positives
    if config.data.augment.name:
        raise UserError("config.objective.softmax_nli.weight: needs labelled pairs, so data.augment.name must be empty")
    if positives not in ("", "all"):
        raise UserError(f"config.data.positives={positives!r}: must be all, for objective.softmax_nli")
    beside = [name for name in CONTRASTIVE if objective[name].weight]
    if beside and positives != "all":
        raise UserError(
            f"config.objective.{beside[0]}.weight: beside softmax_nli it would take all labelled pairs for positives, "
            f"contradictions too; set it to 0.0, or data.positives=all if that is meant"
        )


def ineffective(config: config_dict.ConfigDict) -> list[str]:
    """The fields that were set, `NAME=VALUE`, but count for nothing beside the other fields."""
    default, given = flatten(default_config()), flatten(config)
    objective, augment = config.objective, config.data.augment
    off = {f"objective.{name}.{field}" for name, term in objective.items() if not term.weight for field in term}
    policies = {config.views.positive} | ({config.views.negative} if objective.off_dropout.weight else set())
    conditions = {
        "views.negative": objective.off_dropout.weight > 0,
        "views.noise": "noisy" in policies,
        "views.samples": "mean" in policies,
        "data.augment.percent": augment.name in ("crop", "delete", "mlm"),
        "data.augment.both": bool(augment.name),
        "data.augment.lexicon": augment.name == "synonym",
        "data.augment.mlm_model": augment.name == "mlm",
        "analysis.data": config.analysis.every > 0,
        "analysis.sentences": config.analysis.every > 0,
    }
    off |= {name for name, holds in conditions.items() if not holds}
    if not trains(config):
        off |= {name for name in given if name.startswith(("data.", "objective.", "views.", "train."))}
        off -= {"train.epochs", "train.dtype", "train.matmul_precision", "data.max_length"}
    return [f"{name}={given[name]}" for name in sorted(off) if given[name] != default[name]]
