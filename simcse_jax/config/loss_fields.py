"""The fields of the loss: views of a sentence, a projector, a teacher, sizes, and those that objectives declare."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from simcse_jax.choices import CHANGES, DENOISING, MASKED, NORMS, PLACE, REPEATED, REPETITIONS, STATISTICS
from simcse_jax.config.sections import Config
from simcse_jax.field import BELOW_ONE, Field, at_least, at_most, explain, field, list_of, number, one_of, rule
from simcse_jax.objectives.objective import Objective
from simcse_jax.objectives.registry import OBJECTIVES, needing

POLICIES = {  # which dropout masks the sentences of a pair get; see objectives/views.py
    "independent": "a mask each",
    "shared": "one mask for all of them",
    "off": "no mask",
    "noisy": "a mask each, and Gaussian noise on the embedding",
    "mean": "the mean of several embeddings, each with its own mask",
}


WIDTH = re.compile(r"[1-9]\d{0,4}|[1-9]?D")  # of a projector's layer: 4096, D or 2D


def _objectives(teacher: bool) -> list[Objective]:
    """The objectives that learn from a teacher, whose fields follow the teacher's, or all others."""
    return [objective for objective in OBJECTIVES.values() if bool(objective.teacher) == teacher]


def _sections(objectives: Iterable[Objective]) -> dict[str, str]:
    return {f"objective.{objective.name}": objective.about for objective in objectives}


def fields_of_objectives(objectives: Iterable[Objective]) -> dict[str, Field]:
    """The fields of objectives, by dotted names; all but the weight have an effect only if it is not 0."""
    return {
        f"objective.{objective.name}.{name}": field
        if name == "weight"
        else replace(field, only=f"objective.{objective.name}.weight")
        for objective in objectives
        for name, field in objective.fields.items()
    }


LOSS_SECTIONS = {
    "views": f"The dropout masks of sentences ({explain(POLICIES)}), and changes of them ({explain(CHANGES)}).",
    "projector": "A network with batch norm between the embeddings and some objectives, in training only.",
    "objective": "The loss is the weighted sum of these terms.",
    **_sections(_objectives(teacher=False)),
    "teacher": "A model, or two, whose embeddings of all training sentences are computed once, before the run.",
    **_sections(_objectives(teacher=True)),
    "matryoshka": "The objectives at several sizes of the embeddings (Kusupati et al. 2022).",
}


def has_data_scores(config: Any) -> bool:
    """Whether the data have a teacher's scores of each anchor's positive and hard negatives: no model is named."""
    return bool(needing(config.objective, "teacher")) and not config.teacher.model


def read_dimensions(parts: tuple[str, ...]) -> tuple[int, ...]:
    """The sizes in `matryoshka.dimensions`, the largest first.

    Raises:
      ValueError: when one is no whole number from 1, or is there twice.
    """
    sizes = tuple(int(part) for part in parts)
    if any(size < 1 for size in sizes) or len(set(sizes)) < len(sizes):
        raise ValueError(f"{sizes} are no sizes")
    return tuple(sorted(sizes, reverse=True))


def read_weights(parts: tuple[str, ...]) -> tuple[float, ...]:
    """The weights in `matryoshka.weights`, in its order.

    Raises:
      ValueError: when one is no number from 0 to 1e30, or none is above 1e-30.
    """
    weights = tuple(map(float, parts))
    if not all(0 <= weight <= 1e30 for weight in weights) or (weights and max(weights) <= 1e-30):
        raise ValueError(f"{weights} are no weights")
    return weights


def is_widths(text: str) -> bool:
    """Whether a text has a projector's widths: each a number, D for the hidden size, or a multiple of it such as 2D."""
    return all(WIDTH.fullmatch(width) for width in text.split(","))


def is_template(text: str) -> bool:
    """Whether a text has the place of a sentence, once, and something else."""
    return text.count(PLACE) == 1 and bool(text.replace(PLACE, "").strip())


TEMPLATE = rule(f"empty, or a text around {PLACE}, which it has once", lambda text: not text or is_template(text))
LOSS_FIELDS = {
    "views.positive": field("independent", "The masks of positive pairs.", one_of(POLICIES)),
    "views.negative": field(
        "off",
        "The masks of the negative pairs of objective.off_dropout.",
        one_of(POLICIES),
        only="objective.off_dropout.weight",
    ),
    "views.noise": number(
        0.1,
        "The variance of the Gaussian noise, for noisy.",
        at_least(0.0),
    ),
    "views.samples": field(
        10,
        "The number of masks, for mean.",
        at_least(1),
        at_most(1000),
    ),
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
    "views.positive_change": field(
        "none",
        "The change of the positives; repeated: some of their tokens stand there twice.",
        one_of((*CHANGES, REPEATED)),
    ),
    "views.repetition": field(
        0.32,
        "The largest share of a sentence's tokens that are repeated, for repeated.",
        rule("from 0 to 1", lambda rate: 0 <= rate <= 1),
    ),
    "views.repetition_reading": field(
        "paper",
        f"How many of N tokens are repeated, for repeated. {explain(REPETITIONS)}.",
        one_of(REPETITIONS),
    ),
    "views.positive_template": field(
        "",
        "Another template of positives and hard negatives, with the same special tokens; empty: model.template.",
        TEMPLATE,
    ),
    "views.denoising": field(
        "none", f"What is taken from embeddings in training (PromptBERT). {explain(DENOISING)}.", one_of(DENOISING)
    ),
    "views.cutoff": number(
        0.2,
        "The share of the columns that are zero, for cutoff.",
        BELOW_ONE,
    ),
    "projector.widths": field(
        "",
        "The widths of its layers, WIDTH,WIDTH: numbers, or multiples of the hidden size D; empty: no projector.",
        rule("empty, or widths such as 2D,D or 4096,4096", lambda text: not text or is_widths(text)),
    ),
    "projector.bias": field(
        False,
        "A bias in the last layer; in the others batch norm would take it away.",
        only="projector.widths",
    ),
    "projector.last_norm": field(
        "plain", f"The batch norm after the last layer. {explain(NORMS)}.", one_of(NORMS), only="projector.widths"
    ),
    "projector.statistics": field(
        "together",
        f"Batch norm's mean and variance. {explain(STATISTICS)}.",
        one_of(STATISTICS),
        only="projector.widths",
    ),
    "projector.objectives": field((), "The objectives that see projected embeddings.", only="projector.widths"),
    **fields_of_objectives(_objectives(teacher=False)),
    "teacher.model": field(
        "",
        "The model, as for model.init_from; it is used as it is published, and not trained; empty: margin_mse and "
        "distill_kl read the scores in the data.",
    ),
    "teacher.second": field(
        "",
        "A second teacher; the similarities of both are cosines, and their mean is learned.",
        only="teacher.model",
    ),
    "teacher.share": field(
        0.5,
        "The share of the first teacher in the mean of two.",
        rule("above 0 and below 1", lambda share: 0 < share < 1),
        only="teacher.second",
    ),
    "teacher.kept": field(
        "",
        "A folder that keeps its embeddings for other runs on the same sentences; empty: they are not kept.",
        only="teacher.model",
    ),
    **fields_of_objectives(_objectives(teacher=True)),
    "matryoshka.dimensions": field(
        (),
        "Objectives of embeddings are summed over embeddings of these numbers of elements, e.g. 768,256,64; empty: "
        "embeddings as they are.",
        list_of("empty, or whole numbers from 1, each once", read_dimensions),
    ),
    "matryoshka.weights": number(
        (),
        "The weight of the objectives at each of them, in the same order; empty: 1.",
        list_of("empty, or numbers of 0 or more, at most 1e30, one of them above 1e-30", read_weights),
        only="matryoshka.dimensions",
    ),
}


def matryoshka_sizes(config: Config) -> tuple[int, ...]:
    """The sizes, the largest first; none without `matryoshka.dimensions`."""
    return read_dimensions(config.matryoshka.dimensions)


def matryoshka_weights(config: Config) -> list[float]:
    """The weights of the sizes, in their order."""
    dimensions, weights = config.matryoshka.dimensions, config.matryoshka.weights
    by_size = zip(map(int, dimensions), read_weights(weights) or [1.0] * len(dimensions), strict=True)
    return [weight for _, weight in sorted(by_size, reverse=True)]
