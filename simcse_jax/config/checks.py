"""Whether a config is valid: each field by its own rules, and fields that must go together."""

from collections.abc import Mapping, Sequence
from math import isfinite

from simcse_jax.choices import HEADS, LABELS, MASK, MASK_TOKEN, MASKED, POSTPROCESSING, REPEATED, SEVERAL_LAYERS
from simcse_jax.config.fields import LARGEST, declared_fields, flatten, has_scores, trains
from simcse_jax.config.loss_fields import check_matryoshka, check_teacher
from simcse_jax.config.parallel_fields import check_processes
from simcse_jax.config.retrieval_fields import check_retrieval
from simcse_jax.config.sections import Config, Section
from simcse_jax.config.source_fields import check_sources
from simcse_jax.errors import UserError, nearest, no_such
from simcse_jax.field import Field
from simcse_jax.objectives.objective import Objective
from simcse_jax.objectives.registry import OBJECTIVES, needing, trained_objectives

# Sections that have no effect where nothing is trained.
OF_TRAINING = ("data.", "objective.", "matryoshka.", "projector.", "teacher.", "views.", "train.")
OF_SCORING = {"train.epochs", "train.report_to", "train.dtype", "train.matmul_precision", "data.max_length"}  # of these
LARGEST_FLOAT, SMALLEST_FLOAT = 3.4e38, 1.2e-38  # of float32


def validate(config: Config) -> Section:
    """Checks every field that can be checked without reading anything; sections have been checked already."""
    if isinstance(config, Section):
        return config
    if "sweep" in config:
        raise UserError("config.sweep: this config is a sweep; run it with simcse-jax sweep")
    values = flatten(config)
    fields = declared_fields(config)
    _check_names(values, fields)
    for name, field in fields.items():
        check_field(f"config.{name}", values[name], field)
    _check_model(config)
    _check_templates(config)
    _check_data(config)
    _check_spans(config)
    check_teacher(config)
    _check_training(config)
    _check_projector(config)
    check_matryoshka(config)
    check_sources(config)
    evaluation, analysis = config.eval, config.analysis
    fit = evaluation.postprocess_data, evaluation.postprocess_dimensions
    check_postprocess(evaluation.postprocess, *fit, "config.eval.postprocess", "_")
    check_retrieval(config)
    _check_held_out(config)
    if analysis.every and not analysis.data and not evaluation.data:
        raise UserError("config.analysis.data: must be set, a file of sentences, since eval.data is empty")
    check_processes(config)
    return Section.of(config)


def check_field(name: str, value: object, field: Field) -> None:
    """Refuses a value that is not one of the field's, by its name for errors."""
    check_type(name, value, type(field.default))
    for rule in field.rules:
        rule.check(name, value)
    check_range(name, value)


def check_type(field: str, value: object, expected: type) -> None:
    """Refuses a value of another type; an integer is as good as a float."""
    if type(value) is not expected and not (expected is float and type(value) is int):
        raise UserError(f"{field}={value!r}: must be of type {expected.__name__}")


def check_range(field: str, value: object) -> None:
    """Refuses a number that a device cannot hold, and a text that cannot be written, as bytes that are not UTF-8."""
    if isinstance(value, str) and value != value.encode(errors="ignore").decode():
        raise UserError(f"{field}={value!r:.100}: is not UTF-8; type it in UTF-8, or rename the file")
    if type(value) is int and abs(value) > LARGEST and field != "config.seed":
        raise UserError(f"{field}={str(value)[:40]}: must be at most {LARGEST:,}")
    if type(value) is float and (not isfinite(value) or abs(value) > LARGEST_FLOAT or 0 < abs(value) < SMALLEST_FLOAT):
        raise UserError(f"{field}={value!r}: must be a number of type float32, 0 or from {SMALLEST_FLOAT} in size")


def check_postprocess(method: str, data: str, dimensions: int, field: str, joint: str) -> None:
    """Checks a post-processing as far as possible without reading anything.

    `field` is the user's name for `method`; `field + joint + "data"` and `… "dimensions"` are those of the others.
    """
    if method and method not in POSTPROCESSING:
        raise no_such(field, "method", method, POSTPROCESSING)
    data_field, dimensions_field = f"{field}{joint}data", f"{field}{joint}dimensions"
    if method and not data:
        raise UserError(f"{data_field}: must be set for {method}: a file of sentences, target or target_all")
    if data and not method:
        raise UserError(f"{data_field}={data}: has no effect without {field}={' or '.join(POSTPROCESSING)}")
    if dimensions < 0 or (dimensions and method != "whitening"):
        raise UserError(f"{dimensions_field}={dimensions}: must be 0, or above it for {field}=whitening")


def _check_names(values: Mapping[str, object], fields: Mapping[str, Field]) -> None:
    for name in values:
        if name not in fields:
            raise UserError(f"config.{name}: no such field; the nearest one is config.{nearest(name, fields)}")
    for name in fields:
        if name not in values:
            raise UserError(f"config.{name} is missing; start a config from simcse_jax.config.default_config()")


def _check_model(config: Config) -> None:
    model = config.model
    if model.pooler == "cls_before_pooler" and HEADS[model.mlp].trained:
        raise UserError(
            f"config.model.mlp={model.mlp!r}: the pooler cls_before_pooler never has a head; "
            "set model.mlp=none, or model.pooler=cls"
        )
    poolers = {"eval.pooler": config.eval.pooler, "eval.development_pooler": config.eval.development_pooler}
    for name, pooler in poolers.items():
        if pooler not in ("", model.pooler) and HEADS[model.mlp].scored:
            raise UserError(
                f"config.{name}={pooler!r}: the head of model.mlp={model.mlp!r} is trained on the pooler "
                f"{model.pooler!r} and belongs to it; set model.mlp=train or none, or leave {name} empty"
            )
    if model.lora.init_from and not model.lora.rank:
        raise UserError(
            f"config.model.lora.init_from={model.lora.init_from}: model.lora.rank is 0; set it to the rank of the "
            "adapter, r in its adapter_config.json"
        )
    widths = model.convolutions.widths
    if widths and HEADS[model.mlp].trained:
        raise UserError(f"config.model.mlp={model.mlp!r}: no head follows convolutions; set model.mlp=none")
    for name, pooler in {"model.pooler": model.pooler, **poolers}.items():
        if widths and pooler in SEVERAL_LAYERS:
            raise UserError(
                f"config.{name}={pooler!r}: reads several layers, but model.convolutions.widths={widths!r} "
                f"leaves one; set {name}=avg"
            )


def _check_templates(config: Config) -> None:
    """Refuses templates without the mask token that a pooler reads, and changes that would be made to a template."""
    model, views, evaluation = config.model, config.views, config.eval
    poolers = (model.pooler, evaluation.pooler, evaluation.development_pooler)
    for name, text in (("model.template", model.template), ("views.positive_template", views.positive_template)):
        if text and MASK_TOKEN in poolers and MASK not in text:
            raise UserError(f"config.{name}={text!r:.100}: has no {MASK}, which the pooler {MASK_TOKEN} reads")
    if views.positive_template and views.positive_change != "none":
        raise UserError(
            f"config.views.positive_template: not with views.positive_change={views.positive_change!r}; set one of them"
        )
    if model.template and views.positive_change == REPEATED:
        raise UserError(
            f"config.views.positive_change={REPEATED!r}: repeats words of model.template too; leave one out"
        )
    if views.anchor_change == MASKED and MASK_TOKEN in poolers:
        raise UserError(
            f"config.views.anchor_change={MASKED!r}: the pooler {MASK_TOKEN} would read masked words; set it to none"
        )


def _check_data(config: Config) -> None:
    data, columns, augment = config.data, config.data.columns, config.data.augment
    if (columns.positive or columns.negative or columns.neutral) and not columns.anchor:
        raise UserError("config.data.columns.anchor: must be set too, since another column is")
    for earlier, later in (("positive", "negative"), ("negative", "neutral")):
        if columns[later] and not columns[earlier]:
            raise UserError(f"config.data.columns.{earlier}: must be set too, since data.columns.{later} is")
    if augment.name and data.positives:
        raise UserError(
            f"config.data.augment.name={augment.name!r} makes the positives, and so does "
            f"data.positives={data.positives!r}; set one of them"
        )
    for name, field in (("synonym", "lexicon"), ("mlm", "mlm_model")):
        if augment.name == name and not augment[field]:
            raise UserError(f"config.data.augment.{field}: must be set for data.augment.name={name}")


def _check_held_out(config: Config) -> None:
    held_out, data, evaluation = config.data.held_out, config.data, config.eval
    if not held_out:
        return
    field = f"config.data.held_out={held_out}"
    for name, value in (("eval.data", evaluation.data), ("eval.retrieval.data", evaluation.retrieval.data)):
        if value:
            raise UserError(f"{field}: {name}={value} scores the model already; leave one of them out")
    for need, description in (("labels", "labels"), ("teacher", "a teacher")):
        if unsuited := needing(config.objective, need):
            raise UserError(
                f"{field}: objective.{unsuited[0].name} is trained with {description}, by which nothing is held out"
            )
    if data.mixed:
        raise UserError(f"{field}: not with data.mixed, since sentences alone have no positives; set eval.data")
    if data.positives and data.positives not in LABELS:
        raise UserError(f"{field}: not with data.positives={data.positives}, whose pairs are not rows; set eval.data")
    if data.augment.name:
        raise UserError(f"{field}: not with data.augment.name={data.augment.name}, whose pairs are made; set eval.data")


def _check_spans(config: Config) -> None:
    spans, size = config.data.spans, config.train.batch_size
    if config.data.positives != "spans":
        return
    if spans.shortest > spans.longest:
        raise UserError(f"config.data.spans.shortest={spans.shortest}: is above data.spans.longest={spans.longest}")
    if spans.tokens < (needed := 2 * spans.anchors * spans.longest):
        raise UserError(
            f"config.data.spans.tokens={spans.tokens}: must be {needed} or more, twice data.spans.anchors times "
            "data.spans.longest, so that anchors have room"
        )
    if size % spans.anchors:
        raise UserError(
            f"config.train.batch_size={size}: counts anchors, so it must be divisible by "
            f"data.spans.anchors={spans.anchors}"
        )


def _check_training(config: Config) -> None:
    active, train = list(trained_objectives(config.objective).values()), config.train
    if not active:
        raise UserError("config.objective: every term has weight 0.0, so there is nothing to train")
    values = flatten(config)
    for objective in active:
        _check_grades(config, objective, active)
        checked = {name: values[name] for name in objective.checked}
        objective.check(config.objective[objective.name], checked, active)
    if config.views.anchor_change == MASKED:
        _check_masked_anchors(config)
    if train.patience and trains(config) and not has_scores(config):
        raise UserError(f"config.train.patience={train.patience}: eval.data is empty, so there are no scores")
    if train.schedule == "steps" and not train.milestones:
        raise UserError("config.train.milestones: must be set for train.schedule=steps, e.g. 500:0.8,1000:0.6")


def _check_grades(config: Config, objective: Objective, active: Sequence[Objective]) -> None:
    """Refuses made or chosen pairs, and losses of pairs as positives, where pairs have labels or scores."""
    if not (objective.labels or objective.scores):
        return
    kind, low = (
        ("labelled pairs", "contradictions") if objective.labels else ("pairs with scores", "those with low scores")
    )
    data, field = config.data, f"objective.{objective.name}"
    if data.augment.name:
        raise UserError(f"config.{field}.weight: needs {kind}, so data.augment.name must be empty")
    if data.positives not in ("", "all"):
        raise UserError(f"config.data.positives={data.positives!r}: must be empty or all, for {field}")
    if data.columns.negative:
        raise UserError(f"config.data.columns.negative={data.columns.negative!r}: {field} needs {kind}; leave it empty")
    paired = [other.name for other in active if other.paired]
    if paired and data.positives != "all":
        raise UserError(
            f"config.objective.{paired[0]}.weight: next to {objective.name} it would take all {kind} for positives, "
            f"{low} too; set it to 0.0, or data.positives=all if you want that"
        )


def _check_projector(config: Config) -> None:
    projector = config.projector
    for name in projector.objectives:
        if name not in config.objective:
            raise no_such("config.projector.objectives", "objective", name, tuple(config.objective))
        if name in OBJECTIVES and not OBJECTIVES[name].projectable:
            raise UserError(f"config.projector.objectives: {name} sees no projected embeddings; leave it out")
    if projector.widths and not projector.objectives:
        raise UserError("config.projector.objectives: must name the objectives that see projected embeddings")


def _check_masked_anchors(config: Config) -> None:
    field = "config.views.anchor_change='masked'"
    if not needing(config.objective, "masks_tokens"):
        raise UserError(f"{field}: needs objective.mlm.weight above 0, the loss of the masked tokens")
    replaced = [objective.name for objective in needing(config.objective, "replaces_tokens")]
    if config.model.convolutions.widths or replaced:
        other = "model.convolutions.widths" if config.model.convolutions.widths else f"objective.{replaced[0]}"
        raise UserError(f"{field}: not with {other}; set views.anchor_change=none")


def ineffective(config: Config) -> list[str]:
    """The fields, `NAME=VALUE`, that were set but have no effect with these other fields."""
    values, fields = flatten(config), declared_fields(config)
    off = {name for name, field in fields.items() if not field.has_effect(config)}
    if not trains(config):
        off |= {name for name in values if name.startswith(OF_TRAINING)} - OF_SCORING
    return [f"{name}={values[name]}" for name in sorted(off) if values[name] != fields[name].default]
