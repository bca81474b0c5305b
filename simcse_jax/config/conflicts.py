"""Fields that do not go together: each is named with the reason and the remedy, before anything is read."""

from collections.abc import Iterator
from itertools import chain

from simcse_jax.choices import (
    HEADS,
    LABELS,
    MASK,
    MASK_TOKEN,
    MASKED,
    REPEATED,
    RETRIEVAL,
    ROLES,
    SEVERAL_LAYERS,
    SPANS,
)
from simcse_jax.config.evaluation_fields import has_scores
from simcse_jax.config.fields import trains
from simcse_jax.config.sections import Section
from simcse_jax.config.source_fields import ONE_SOURCE, gap_reason, read_prompts
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_sources
from simcse_jax.objectives.objective import CLASSES, ELEMENTS, RELATIONS, SCORES
from simcse_jax.objectives.registry import OBJECTIVES, find_pairing, needing, trained_objectives

Conflicts = Iterator[tuple[str, str]]  # a field, and why it cannot be as it is


def check_together(config: Section) -> None:
    """Refuses fields that do not go together, by the name of one of them."""
    groups = (_of_model, _of_columns, _of_spans, _of_objectives, _of_templates, _of_sources, _of_scores, _of_processes)
    for name, reason in chain.from_iterable(group(config) for group in groups):
        value = config[name]
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else f"{value!r}"
        shown = "" if isinstance(value, Section) else f"={shown:.100}"
        raise UserError(f"config.{name}{shown}: {reason}")


def _of_model(config: Section) -> Conflicts:
    model, widths = config.model, config.model.convolutions.widths
    head = HEADS[model.mlp]
    if model.lora.init_from and not model.lora.rank:
        yield "model.lora.init_from", "needs model.lora.rank, the adapter's"
    if head.trained and model.pooler == "cls_before_pooler":
        yield "model.mlp", "the pooler cls_before_pooler never has a head; set model.mlp=none, or model.pooler=cls"
    if head.trained and widths:
        yield "model.mlp", "no head follows convolutions; set it to none"
    for name in ("model.pooler", "eval.pooler", "eval.development_pooler"):
        if head.scored and config[name] not in ("", model.pooler):
            yield (
                name,
                f"the head belongs to model.pooler={model.pooler}; leave it empty, or set model.mlp=train or none",
            )
        if widths and config[name] in SEVERAL_LAYERS:
            yield name, "reads several layers, but model.convolutions.widths leaves one; set it to avg"


def _of_templates(config: Section) -> Conflicts:
    views = config.views
    reads_mask = MASK_TOKEN in (config.model.pooler, config.eval.pooler, config.eval.development_pooler)
    for name in ("model.template", "views.positive_template"):
        if config[name] and reads_mask and MASK not in config[name]:
            yield name, f"has no {MASK}, which the pooler {MASK_TOKEN} reads"
    if views.positive_template and views.positive_change != "none":
        yield "views.positive_template", "not with views.positive_change; set one of them"
    if config.model.template and views.positive_change == REPEATED:
        yield "views.positive_change", "repeats words of model.template too; leave one out"
    if views.anchor_change != MASKED:
        return
    if reads_mask:
        yield "views.anchor_change", f"the pooler {MASK_TOKEN} would read masked words; set it to none"
    if not needing(config.objective, "masks_tokens"):
        yield "views.anchor_change", "needs objective.mlm.weight above 0, the loss of the masked tokens"
    if config.model.convolutions.widths or needing(config.objective, "replaces_tokens"):
        yield "views.anchor_change", "neither with convolutions nor with replaced tokens; set it to none"


def _of_columns(config: Section) -> Conflicts:
    data, columns = config.data, config.data.columns
    order = ("anchor", "positive", "negative", "neutral")
    for place, name in enumerate(order):
        if not columns[name] and any(columns[later] for later in order[place + 1 :]):
            yield f"data.columns.{name}", "must be set too, since a later column is"
    if data.augment.name and data.positives:
        yield "data.augment.name", "makes the positives, and so does data.positives; set one of them"
    for name, field in (("synonym", "lexicon"), ("mlm", "mlm_model")):
        if data.augment.name == name and not data.augment[field]:
            yield f"data.augment.{field}", f"must be set for data.augment.name={name}"
    if data.folds and data.held_out:
        yield "data.folds", "data.held_out scores the model already; leave one of them out"
    if data.folds and (data.batching == ONE_SOURCE or data.weights):
        yield "data.folds", f"mixes all rows alike: without data.weights and data.batching={ONE_SOURCE}"
    for apart in [field for field in ("held_out", "folds") if data[field]]:
        if config.eval.data or config.eval.retrieval.data:
            yield f"data.{apart}", "eval.data or eval.retrieval.data scores the model already; leave one of them out"
        for objective in (*needing(config.objective, "labels"), *needing(config.objective, "teacher")):
            if objective.labels != CLASSES:
                needed = "labels" if objective.labels else "a teacher"
                yield f"data.{apart}", f"objective.{objective.name} needs {needed}, by which none are held out"
        if data.mixed or data.augment.name or data.positives not in ("", *LABELS):
            yield f"data.{apart}", "needs pairs that are rows: without data.mixed, data.augment and such data.positives"


def _of_spans(config: Section) -> Conflicts:
    spans, size = config.data.spans, config.train.batch_size
    if config.data.positives != SPANS:
        return
    if spans.shortest > spans.longest:
        yield "data.spans.shortest", f"is above data.spans.longest={spans.longest}"
    if spans.tokens < (needed := 2 * spans.anchors * spans.longest):
        yield "data.spans.tokens", f"must be {needed} or more: twice data.spans.anchors times data.spans.longest"
    if size % spans.anchors:
        yield "train.batch_size", f"counts anchors: must be divisible by data.spans.anchors={spans.anchors}"


def _of_objectives(config: Section) -> Conflicts:
    active, projector = trained_objectives(config.objective), config.projector
    if not active:
        yield "objective", "every term has weight 0.0, so there is nothing to train"
    for objective in active.values():
        if objective.labels == RELATIONS or objective.scores:
            yield from _of_grades(config, objective.name, "labels" if objective.labels else "scores")
        yield from objective.conflicts(config, [*active.values()])
    for name in projector.objectives:
        if name not in config.objective or (name in OBJECTIVES and not OBJECTIVES[name].projectable):
            usable = [other for other in config.objective if other not in OBJECTIVES or OBJECTIVES[other].projectable]
            yield "projector.objectives", f"{name} is not one of {', '.join(usable)}"
    if projector.widths and not projector.objectives:
        yield "projector.objectives", "must name the objectives that see projected embeddings"
    yield from _of_teachers_and_sizes(config)


def _of_grades(config: Section, name: str, graded: str) -> Conflicts:
    """Pairs that are made or chosen, and losses of pairs as positives, where pairs have labels or scores."""
    data = config.data
    if data.augment.name:
        yield f"objective.{name}.weight", f"needs pairs with {graded}, so data.augment.name must be empty"
    if data.positives not in ("", "all"):
        yield "data.positives", f"must be empty or all, for objective.{name}"
    if data.columns.negative:
        yield "data.columns.negative", f"objective.{name} needs pairs with {graded}; leave it empty"
    paired = [other.name for other in needing(config.objective, "paired")]
    if paired and data.positives != "all":
        yield (
            f"objective.{paired[0]}.weight",
            f"next to {name} it takes pairs with all {graded} for positives; set it to 0.0, or data.positives=all if "
            "you want that",
        )


def _of_teachers_and_sizes(config: Section) -> Conflicts:
    teacher, sizes, projector = config.teacher, config.matryoshka, config.projector
    for objective in needing(config.objective, "teacher"):
        if objective.teacher != SCORES and not teacher.model:
            yield "teacher.model", f"must be set for objective.{objective.name}: a model"
        if objective.teacher == ELEMENTS:
            yield from _of_training_alone(config, f"objective.{objective.name}.weight")
            if teacher.second:
                yield (
                    "teacher.second",
                    f"objective.{objective.name} compares elements, which two teachers do not share",
                )
    if sizes.weights and len(sizes.weights) != len(sizes.dimensions):
        yield "matryoshka.weights", "give one for each of matryoshka.dimensions, or none"
    if sizes.dimensions:
        yield from _of_training_alone(config, "matryoshka.dimensions")
        for objective in needing(config.objective, "truncatable") if projector.widths else ():
            if objective.name in projector.objectives:
                yield "matryoshka.dimensions", f"objective.{objective.name} sees projected embeddings; leave one out"


def _of_training_alone(config: Section, name: str) -> Conflicts:
    """A head, or a pooler, that embeddings have in training alone, where `name` trains the elements themselves."""
    model, head = config.model, HEADS[config.model.mlp]
    if head.trained != head.scored:
        yield (
            name,
            f"trains what follows the head, which model.mlp={model.mlp} drops; set that to none or always",
        )
    if config.eval.pooler not in ("", model.pooler):
        yield name, f"trains the pooler {model.pooler}, but eval.pooler={config.eval.pooler} is kept; leave that empty"


def _of_sources(config: Section) -> Conflicts:
    data, prompts, sources = config.data, read_prompts(config), split_sources(config.data.train)
    if data.weights and len(data.weights) != len(sources):
        yield "data.weights", f"{len(data.weights)} weights for {len(sources)} source(s); give one for each, or none"
    differing = {f"data.prompts.{role}": len(set(texts)) > 1 for role, texts in zip(ROLES, prompts, strict=False)}
    by_source = {
        "data.weights": data.weights,
        "data.batching": data.batching == ONE_SOURCE,
        "data.no_duplicates": data.no_duplicates,
        **differing,
    }
    for name, is_set in by_source.items():
        if is_set and data.positives == SPANS:
            yield name, "spans are drawn from all documents together; leave it as it is by default"
    if maker := find_pairing(config.objective):
        why = f"objective.{maker[0]} makes its pairs of all sentences of an epoch"
        if data.no_duplicates:
            yield "data.no_duplicates", f"{why}, and some of a sentence and itself; set it to False"
        if data.weights and data.batching != ONE_SOURCE:
            yield "data.weights", f"{why}; leave it empty, or set data.batching={ONE_SOURCE}"
    if data.mixed and data.batching != ONE_SOURCE and (reason := gap_reason(config)):
        yield "data.mixed", f"{reason[0]}; set it to False, or {reason[1]}"


def _of_scores(config: Section) -> Conflicts:
    evaluation, train = config.eval, config.train
    if train.patience and trains(config) and not has_scores(config):
        yield "train.patience", "eval.data is empty, so there are no scores"
    if train.schedule == "steps" and not train.milestones:
        yield "train.milestones", "must be set for train.schedule=steps, e.g. 500:0.8,1000:0.6"
    if config.analysis.every and not (config.analysis.data or evaluation.data):
        yield "analysis.data", "must be set, a file of sentences, since eval.data is empty"
    if evaluation.postprocess and not evaluation.postprocess_data:
        yield "eval.postprocess_data", "must be set: a file of sentences, target or target_all"
    if evaluation.retrieval.data and evaluation.postprocess:
        yield "eval.postprocess", "is for similarity and transfer; leave it empty, or eval.retrieval.data"
    if evaluation.development == RETRIEVAL and not evaluation.retrieval.data:
        yield "eval.retrieval.data", "must be set for eval.development=retrieval, a folder"
    if evaluation.retrieval.data and not evaluation.data and evaluation.development != RETRIEVAL:
        yield "eval.development", "eval.data is empty, so nothing would choose the best checkpoint; set it to retrieval"


def _of_processes(config: Section) -> Conflicts:
    parallel = config.parallel
    if parallel.processes > 1 and parallel.process_id >= parallel.processes:
        yield "parallel.process_id", f"must be below {parallel.processes}"
    if parallel.processes > 1 and not parallel.coordinator.rpartition(":")[2].isdigit():
        yield "parallel.coordinator", "must be HOST:PORT of process 0"
