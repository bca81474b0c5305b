"""The fields of the loss: views of a sentence, a projector, and those that objectives declare."""

from collections.abc import Iterable

from simcse_jax.config.matryoshka_fields import MATRYOSHKA_FIELDS, MATRYOSHKA_SECTIONS
from simcse_jax.config.teacher_fields import TEACHER_FIELDS, TEACHER_SECTIONS
from simcse_jax.field import BELOW_ONE, Field, at_least, at_most, either, explain, field, number, one_of, rule
from simcse_jax.models.config import CHANGES, MASKED, NORMS, STATISTICS, is_widths
from simcse_jax.objectives.objective import Objective
from simcse_jax.objectives.registry import OBJECTIVES

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
    """The fields of objectives, by dotted names."""
    return {f"objective.{one.name}.{name}": field for one in objectives for name, field in one.fields.items()}


LOSS_SECTIONS = {
    "views": f"The dropout masks of sentences ({explain(POLICIES)}), and changes of them ({explain(CHANGES)}).",
    "projector": "A network with batch norm between the embeddings and some objectives, in training only.",
    "objective": "The loss is the weighted sum of these terms.",
    **_sections(_objectives(teacher=False)),
    **TEACHER_SECTIONS,
    **_sections(_objectives(teacher=True)),
    **MATRYOSHKA_SECTIONS,
}

LOSS_FIELDS = {
    "views.positive": field("independent", "The masks of positive pairs.", one_of(POLICIES)),
    "views.negative": field("off", "The masks of the negative pairs of objective.off_dropout.", one_of(POLICIES)),
    "views.noise": number(0.1, "The variance of the Gaussian noise, for noisy.", at_least(0.0)),
    "views.samples": field(10, "The number of masks, for mean.", at_least(1), at_most(1000)),
    "views.positive_dropout": number(
        -1.0,
        "The dropout rate of the positives; -1: that of model.dropout.",
        rule("at least 0 and below 1, or -1", lambda x: x == -1 or 0 <= x < 1),
    ),
    "views.anchor_change": field(
        "none",
        "The change of the anchors; masked: they are embedded as objective.mlm sees them, in one pass for both.",
        one_of((*CHANGES, MASKED)),
    ),
    "views.positive_change": field("none", "The change of the positives.", one_of(CHANGES)),
    "views.cutoff": number(0.2, "The share of the columns that are zero, for cutoff.", BELOW_ONE),
    "projector.widths": field(
        "",
        "The widths of its layers, WIDTH,WIDTH: numbers, or multiples of the hidden size D; empty: no projector.",
        rule("empty, or widths such as 2D,D or 4096,4096", lambda text: not text or is_widths(text)),
    ),
    "projector.bias": field(False, "A bias in the last layer; in the others batch norm would take it away."),
    "projector.last_norm": field("plain", f"The batch norm after the last layer. {explain(NORMS)}.", one_of(NORMS)),
    "projector.statistics": field(
        "together", f"Batch norm's mean and variance. {explain(STATISTICS)}.", either(STATISTICS)
    ),
    "projector.objectives": field((), "The objectives that see projected embeddings."),
    **fields_of_objectives(_objectives(teacher=False)),
    **TEACHER_FIELDS,
    **fields_of_objectives(_objectives(teacher=True)),
    **MATRYOSHKA_FIELDS,
}
