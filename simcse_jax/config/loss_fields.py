"""The fields of the loss: views of a sentence, a projector, and those that objectives declare."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from simcse_jax.config.matryoshka_fields import MATRYOSHKA_FIELDS, MATRYOSHKA_SECTIONS
from simcse_jax.config.teacher_fields import TEACHER_FIELDS, TEACHER_SECTIONS
from simcse_jax.field import BELOW_ONE, Field, at_least, at_most, either, explain, field, number, one_of, rule
from simcse_jax.models.config import CHANGES, MASKED, NORMS, STATISTICS, is_widths
from simcse_jax.objectives.objective import Objective
from simcse_jax.objectives.registry import OBJECTIVES, needing

POLICIES = {  # which dropout masks the sentences of a pair get; see objectives/views.py
    "independent": "a mask each",
    "shared": "one mask for all of them",
    "off": "no mask",
    "noisy": "a mask each, and Gaussian noise on the embedding",
    "mean": "the mean of several embeddings, each with its own mask",
}


def _objectives(teacher: bool) -> list[Objective]:
    """Those that learn from a teacher, whose fields follow its own, or the others."""
    return [objective for objective in OBJECTIVES.values() if objective.teacher == teacher]


def _sections(objectives: Iterable[Objective]) -> dict[str, str]:
    return {f"objective.{one.name}": one.about for one in objectives}


def fields_of_objectives(objectives: Iterable[Objective]) -> dict[str, Field]:
    """The fields of objectives, by dotted names; all but the weight have an effect only if it is not 0."""
    return {f"objective.{one.name}.{name}": _while_on(one, name) for one in objectives for name in one.fields}


def _while_on(objective: Objective, name: str) -> Field:
    own = objective.fields[name]
    if name == "weight":
        return own
    return replace(own, only=lambda config: config.objective[objective.name].weight and own.has_effect(config))


LOSS_SECTIONS = {
    "views": f"The dropout masks of sentences ({explain(POLICIES)}), and changes of them ({explain(CHANGES)}).",
    "projector": "A network with batch norm between the embeddings and some objectives, in training only.",
    "objective": "The loss is the weighted sum of these terms.",
    **_sections(_objectives(teacher=False)),
    **TEACHER_SECTIONS,
    **_sections(_objectives(teacher=True)),
    **MATRYOSHKA_SECTIONS,
}


def _separate(config: Any) -> bool:
    return bool(needing(config.objective, "separate_negatives"))


def _policies(config: Any) -> set[str]:
    return {config.views.positive} | ({config.views.negative} if _separate(config) else set())


def _projects(config: Any) -> bool:
    seen = any(config.objective[name].weight for name in config.projector.objectives)
    return seen and bool(config.projector.widths)


LOSS_FIELDS = {
    "views.positive": field("independent", "The masks of positive pairs.", one_of(POLICIES)),
    "views.negative": field(
        "off", "The masks of the negative pairs of objective.off_dropout.", one_of(POLICIES), only=_separate
    ),
    "views.noise": number(
        0.1,
        "The variance of the Gaussian noise, for noisy.",
        at_least(0.0),
        only=lambda config: "noisy" in _policies(config),
    ),
    "views.samples": field(
        10,
        "The number of masks, for mean.",
        at_least(1),
        at_most(1000),
        only=lambda config: "mean" in _policies(config),
    ),
    "views.positive_dropout": number(
        -1.0,
        "The dropout rate of the positives; -1: that of model.dropout.",
        rule("at least 0 and below 1, or -1", lambda x: x == -1 or 0 <= x < 1),
        only=lambda config: config.views.positive != "off",
    ),
    "views.anchor_change": field(
        "none",
        "The change of the anchors; masked: they are embedded as objective.mlm sees them, in one pass for both.",
        one_of((*CHANGES, MASKED)),
    ),
    "views.positive_change": field("none", "The change of the positives.", one_of(CHANGES)),
    "views.cutoff": number(
        0.2,
        "The share of the columns that are zero, for cutoff.",
        BELOW_ONE,
        only=lambda config: "cutoff" in (config.views.anchor_change, config.views.positive_change),
    ),
    "projector.widths": field(
        "",
        "The widths of its layers, WIDTH,WIDTH: numbers, or multiples of the hidden size D; empty: no projector.",
        rule("empty, or widths such as 2D,D or 4096,4096", lambda text: not text or is_widths(text)),
        only=_projects,
    ),
    "projector.bias": field(
        False,
        "A bias in the last layer; in the others batch norm would take it away.",
        only=lambda config: _projects(config) and config.projector.last_norm == "none",
    ),
    "projector.last_norm": field(
        "plain", f"The batch norm after the last layer. {explain(NORMS)}.", one_of(NORMS), only=_projects
    ),
    "projector.statistics": field(
        "together", f"Batch norm's mean and variance. {explain(STATISTICS)}.", either(STATISTICS), only=_projects
    ),
    "projector.objectives": field((), "The objectives that see projected embeddings.", only=_projects),
    **fields_of_objectives(_objectives(teacher=False)),
    **TEACHER_FIELDS,
    **fields_of_objectives(_objectives(teacher=True)),
    **MATRYOSHKA_FIELDS,
}
