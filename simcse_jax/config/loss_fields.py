"""The fields of the loss: views of a sentence, a projector, and the objectives."""

from simcse_jax.config.graded_fields import GRADED_FIELDS, GRADED_SECTIONS
from simcse_jax.config.matryoshka_fields import MATRYOSHKA_FIELDS, MATRYOSHKA_SECTIONS
from simcse_jax.config.teacher_fields import TEACHER_FIELDS, TEACHER_SECTIONS
from simcse_jax.field import (
    BELOW_ONE,
    Field,
    above,
    at_least,
    at_most,
    either,
    explain,
    field,
    number,
    one_of,
    rule,
    weight,
)
from simcse_jax.models.config import CHANGES, MASKED, NORMS, STATISTICS, is_widths
from simcse_jax.objectives.choices import NEGATIVES, READINGS, SIMILARITIES

POLICIES = {  # which dropout masks the sentences of a pair get; see training/views.py
    "independent": "a mask each",
    "shared": "one mask for all of them",
    "off": "no mask",
    "noisy": "a mask each, and Gaussian noise on the embedding",
    "mean": "the mean of several embeddings, each with its own mask",
}


def _reading(objective: str) -> Field:
    return field("paper", f"Which of two formulas. {explain(READINGS[objective])}.", either(READINGS[objective]))


LOSS_SECTIONS = {
    "views": f"The dropout masks of sentences ({explain(POLICIES)}), and changes of them ({explain(CHANGES)}).",
    "projector": "A network with batch norm between the embeddings and some objectives, in training only.",
    "objective": "The loss is the weighted sum of these terms.",
    "objective.info_nce": "Pairs against the other sentences of the batch (SimCSE, equations 1, 4, 5 and 8).",
    "objective.off_dropout": "InfoNCE whose negative pairs have masks of their own (SimCSE++, equation 3).",
    "objective.dimension_wise": "Each dimension against the other dimensions (SimCSE++, equation 5).",
    "objective.barlow_twins": "Decorrelated dimensions (SimCSE++, equation 4).",
    "objective.contrastive_tension": "Dot products of equal and of different sentences, classified (CT).",
    "objective.jensen_shannon": "Each token's features find their own sentence (IS-BERT).",
    "objective.mlm": "A masked language model, of 15% of the tokens (SimCSE, Appendix A).",
    "objective.replaced_token_detection": "Which tokens did a generator replace? (DiffCSE, section 3).",
    "objective.self_contrastive": "The views of a sentence repel each other (SCD).",
    "objective.softmax_nli": "SBERT's classifier of labelled pairs.",
    **GRADED_SECTIONS,
    **TEACHER_SECTIONS,
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
    "objective.info_nce.weight": weight(1.0),
    "objective.info_nce.temperature": number(0.05, "Divides similarities.", above(0)),
    "objective.info_nce.hard_negative_weight": number(
        1.0, "The weight of an anchor's own hard negatives: α of SimCSE's equation 8.", at_least(0)
    ),
    "objective.info_nce.similarity": field("cosine", "The similarity of two embeddings.", either(SIMILARITIES)),
    "objective.info_nce.symmetric": field(False, "Also find the anchor of each positive."),
    "objective.info_nce.negatives": field(
        "other", f"Which sentences of the other examples are negatives. {explain(NEGATIVES)}.", either(NEGATIVES)
    ),
    "objective.off_dropout.weight": weight(),
    "objective.off_dropout.temperature": number(0.05, "Divides similarities.", above(0)),
    "objective.off_dropout.m": number(
        0.9, "The balance of positives and negatives.", above(0, "at 0 there is nothing to learn")
    ),
    "objective.off_dropout.reading": _reading("off_dropout"),
    "objective.dimension_wise.weight": weight(),
    "objective.dimension_wise.temperature": number(5.0, "Divides similarities.", above(0)),
    "objective.dimension_wise.reading": _reading("dimension_wise"),
    "objective.barlow_twins.weight": weight(),
    "objective.barlow_twins.off_diagonal_weight": number(
        0.005, "The weight of correlations between different dimensions.", at_least(0)
    ),
    "objective.barlow_twins.reading": _reading("barlow_twins"),
    "objective.barlow_twins.artificial": field(
        0, "Rows of N(0, 1) in addition to the batch.", at_least(0), at_most(100_000)
    ),
    "objective.contrastive_tension.weight": weight(),
    "objective.contrastive_tension.negatives": field(
        7, "The negative pairs after each positive one: K.", at_least(1), at_most(1000)
    ),
    "objective.contrastive_tension.reading": _reading("contrastive_tension"),
    "objective.self_contrastive.weight": weight(),
    "objective.self_contrastive.temperature": number(0.05, "Divides similarities.", above(0)),
    "objective.jensen_shannon.weight": weight(),
    "objective.mlm.weight": weight(),
    "objective.replaced_token_detection.weight": weight(),
    "objective.replaced_token_detection.masking_rate": number(
        0.3,
        "The share of tokens that are masked before the generator reads a sentence.",
        rule("above 0 and at most 1", lambda rate: 0 < rate <= 1),
    ),
    "objective.softmax_nli.weight": weight(),
    **GRADED_FIELDS,
    **TEACHER_FIELDS,
    **MATRYOSHKA_FIELDS,
}
