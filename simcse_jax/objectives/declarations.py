"""The package's objectives as a config sees them, in the order of `--help`: fields and needs, without JAX.

The file of the same name in this folder has the equation, and a subclass with the loss.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, ClassVar

from simcse_jax.choices import SPANS
from simcse_jax.data.pairing import Pairing
from simcse_jax.errors import UserError
from simcse_jax.field import (
    BELOW_ONE,
    above,
    at_least,
    at_most,
    explain,
    field,
    number,
    one_of,
    reading,
    rule,
    weight,
)
from simcse_jax.objectives.objective import (
    CLASSES,
    ELEMENTS,
    EMBEDDINGS,
    RELATIONS,
    SCORES,
    Columns,
    Objective,
    PairingObjective,
    SecondPassObjective,
    StatefulObjective,
    TokenObjective,
)

MEASURES = ("cosine", "dot")  # of the similarity of two embeddings
NEGATIVES = {  # of InfoNCE: which views of the batch's other examples
    "other": "their positives and hard negatives",
    "both": "their positives, anchors and hard negatives, without these NT-Xent, SimCLR's loss",
    "all": "the same, and of a positive their positives and hard negatives, in one sum, as in Qwen3-Embedding",
    "positives": "their positives, and no hard negatives, which are another objective's",
}
WEIGHTED = {  # which negatives InfoNCE weighs by their hardness
    "own": "an anchor's own hard negatives, as in EmbeddingGemma",
    "others": "sentences of other examples (Lan et al. 2025)",
    "all": "all of them",
}
MARGINS = {  # of GIST
    "absolute": "is subtracted from the positive's similarity",
    "relative": "is a share of the positive's similarity",
}
DISTANCES = {"euclidean": "the length of their difference", "cosine": "1 - their cosine"}  # of the triplet loss
LIST_LOSSES = {  # of ranking distillation
    "listmle": "the likelihood of the teacher's order of all sentences",
    "listnet": "the cross-entropy with the teacher's distribution over the most similar one",
}
REPLACEMENTS = {  # the readings of replaced-token detection, whose default is the code's
    "released": "the generator's most probable word takes the place of every token but the first",
    "paper": "masked tokens alone are replaced, by words drawn from the generator's distribution",
}
REDUCTIONS = {  # of the losses of replaced-token detection's tokens
    "mean": "the mean over all tokens, as in its authors' code",
    "sum": "the sum over a sentence's tokens, as in the paper, and the mean over sentences",
}


class InfoNCE(Objective):
    """SimCSE's contrast; with negatives from both views, that of ConSERT and DeCLUTR."""

    name = "info_nce"
    about = "Pairs against the other sentences of the batch (SimCSE, equations 1, 4, 5 and 8)."
    contrasts = True
    fields: ClassVar = {
        "weight": weight(1.0),
        "temperature": number(0.05, "Divides similarities.", above(0)),
        "hard_negative_weight": number(
            1.0,
            "The weight of an anchor's own hard negatives: α of SimCSE's equation 8.",
            at_least(0),
        ),
        "similarity": field("cosine", "The similarity of two embeddings.", one_of(MEASURES)),
        "symmetric": field(False, "Also find the anchor of each positive."),
        "negatives": field(
            "other", f"Which sentences of the other examples are negatives. {explain(NEGATIVES)}.", one_of(NEGATIVES)
        ),
        "margin": field(
            -1.0,
            "Negatives that are more similar than the positive by more than this are left out as false ones; -1.0: "
            "none, 0.1: Qwen3-Embedding's.",
            rule("-1.0, or 0 or more", lambda margin: margin == -1 or 0 <= margin < inf),
        ),
        "hardness": field(
            0.0,
            "Negatives count e^(this · similarity) times as much; 0.0: all alike, 5.0: EmbeddingGemma's.",
            at_least(0),
        ),
        "weighted": field(
            "all",
            f"Which negatives hardness is of. {explain(WEIGHTED)}.",
            one_of(WEIGHTED),
            only="objective.info_nce.hardness",
        ),
    }

    def check_columns(self, fields: Any, columns: Columns) -> None:
        """Refuses a hardness of hard negatives where an anchor has none among its negatives."""
        if fields.hardness and fields.weighted == "own" and (columns.number < 3 or fields.negatives == "positives"):
            raise UserError(
                f"config.objective.info_nce.weighted=own: {columns.data} has no hard negatives that are negatives of "
                "their anchors; set it to all"
            )


class OffDropout(Objective):
    """SimCSE++'s contrast: pairs with dropout, and negative pairs with masks of their own, or none."""

    name = "off_dropout"
    about = "InfoNCE whose negative pairs have masks of their own (SimCSE++, equation 3)."
    separate_negatives = contrasts = True
    fields: ClassVar = {
        "weight": weight(),
        "temperature": number(0.05, "Divides similarities.", above(0)),
        "m": number(0.9, "The balance of positives and negatives.", above(0, "at 0 there is nothing to learn")),
        "reading": reading(
            {
                "paper": "m multiplies the sum of the negatives, as in SimCSE++'s equation 3",
                "released": "m multiplies the positive pair's similarity, as in its authors' code",
            }
        ),
    }


class DimensionWise(Objective):
    """SimCSE++'s contrast of dimensions."""

    name = "dimension_wise"
    reads = ("anchor", "positive")
    about = "Each dimension against the other dimensions (SimCSE++, equation 5)."
    fields: ClassVar = {
        "weight": weight(),
        "temperature": number(5.0, "Divides similarities.", above(0)),
        "reading": reading(
            {"paper": "SimCSE++'s equation 5 as printed", "released": "the equation in its authors' code"}
        ),
    }


class MomentumContrast(StatefulObjective):
    """ESimCSE's contrast with a queue."""

    name = "momentum_contrast"
    about = "InfoNCE with a queue of negatives from a momentum encoder (ESimCSE, equation 6)."
    contrasts = True
    projectable = False  # the queue has embeddings
    fields: ClassVar = {
        "weight": weight(),
        "temperature": number(0.05, "Divides similarities.", above(0)),
        "queue": field(160, "How many embeddings of earlier steps are negatives.", at_least(1), at_most(2**20)),
        "momentum": number(0.995, "The momentum encoder becomes γ · itself + (1 - γ) · the encoder.", BELOW_ONE),
        "reading": reading(
            {
                "paper": "the momentum encoder starts as a copy of the encoder",
                "released": "it starts from random weights, as its authors' code does",
            }
        ),
    }


class BarlowTwins(Objective):
    """Decorrelated dimensions of two views, also one half of SCD's objective."""

    name = "barlow_twins"
    reads = ("anchor", "positive")
    about = "Decorrelated dimensions (SimCSE++, equation 4)."
    fields: ClassVar = {
        "weight": weight(),
        "off_diagonal_weight": number(0.005, "The weight of correlations between different dimensions.", at_least(0)),
        "reading": reading(
            {
                "paper": "a correlation that is not centred, as in SimCSE++'s equation 4",
                "released": "batch-normalized and so centred, as in its authors' code",
            }
        ),
        "artificial": field(0, "Rows of N(0, 1) in addition to the batch.", at_least(0), at_most(100_000)),
    }


class SpreadOut(Objective):
    """A regularizer for a contrastive loss: different sentences are near orthogonal."""

    name = "spread_out"
    reads = ("anchor", "positive")
    about = "Squared cosines of different anchors, and of different positives (EmbeddingGemma)."
    fields: ClassVar = {"weight": weight()}


class ContrastiveTension(PairingObjective):
    """CT: groups of pairs, of which the first one has the same sentence twice."""

    name = "contrastive_tension"
    reads = ("anchor", "positive")
    about = "Dot products of equal and of different sentences, classified (CT)."
    compares_views = False
    contrasts = True
    fields: ClassVar = {
        "weight": weight(),
        "negatives": field(7, "The negative pairs after each positive one: K.", at_least(1), at_most(1000)),
        "reading": reading(
            {
                "paper": "negative pairs are the anchor of the group with other sentences, as the paper says",
                "released": "negative pairs are two fresh sentences each, as in the authors' code",
            }
        ),
    }

    def conflicts(self, config: Any, active: Sequence[Objective]) -> Iterator[tuple[str, str]]:
        """Other objectives of pairs, other sources of pairs, and groups that a batch would cut."""
        for name in [other.name for other in active if other is not self and other.embeds]:
            reason = "next to contrastive_tension, most of whose pairs have different sentences, it must be 0.0"
            yield f"objective.{name}.weight", reason
        for name in ("data.positives", "data.augment.name"):
            if config[name]:
                yield name, "objective.contrastive_tension makes its own pairs; it must be empty"
        group = config.objective.contrastive_tension.negatives + 1
        if config.train.batch_size % group:
            yield "train.batch_size", f"must be divisible by {group}, 1 + objective.contrastive_tension.negatives"

    def pairing(self, fields: Any) -> Pairing:
        """Groups of K + 1 pairs."""
        return Pairing(fields.negatives, fresh=fields.reading == "released")


class SelfContrastive(Objective):
    """SCD's repulsion of a sentence's views."""

    name = "self_contrastive"
    reads = ("anchor", "positive")
    about = "The views of a sentence repel each other (SCD)."
    fields: ClassVar = {"weight": weight(), "temperature": number(0.05, "Divides similarities.", above(0))}


class JensenShannon(TokenObjective):
    """IS-BERT: tokens of the anchors, and the embeddings of the positives, which may be the same view."""

    name = "jensen_shannon"
    reads = ("anchor", "positive")
    about = "Each token's features find their own sentence (IS-BERT)."
    features = ("anchor",)
    compares_views = False
    contrasts = True
    projectable = False  # the features of tokens have no projector


class BidirectionalMargin(Objective):
    """SNCSE's loss of soft negatives, which are the data's hard negatives."""

    name = "bidirectional_margin"
    about = "Hard negatives as soft ones: less similar than the positive, within bounds (SNCSE)."
    fields: ClassVar = {
        "weight": weight(),
        "lower": number(0.1, "The least that the positive's cosine is to be larger: α.", at_least(0)),
        "upper": number(0.3, "The most that the positive's cosine is to be larger: β.", at_least(0)),
    }

    def check_columns(self, fields: Any, columns: Columns) -> None:
        """Refuses data in which no row has a soft negative."""
        if columns.number < 3:
            needed = f"needs soft negatives, but {columns.data} has no column of them; set data.columns.negative"
            raise UserError(f"config.objective.{self.name}.weight: {needed}")


class RankingConsistency(Objective):
    """RankCSE's consistency of two views."""

    name = "ranking_consistency"
    reads = ("anchor", "positive")
    about = "The two views of a sentence rank the batch alike: the Jensen-Shannon divergence (RankCSE)."
    fields: ClassVar = {
        "weight": weight(),
        "temperature": number(0.05, "Divides similarities.", above(0)),
        "reading": reading(
            {
                "paper": "the Jensen-Shannon divergence, as in RankCSE",
                "released": "as in its public code, which is not its authors': the negative entropy of both lists",
            }
        ),
    }


class MaskedLM(TokenObjective):
    """Hidden words of the sentences that the first encoder reads, in a pass of its own or that of the anchors."""

    name = "mlm"
    about = "A masked language model, of 15% of the tokens (SimCSE, Appendix A), or MNTP of decoders (LLM2Vec)."
    masks_tokens = True
    features = ("anchor",)
    embeds = paired = compares_views = projectable = truncatable = False
    fields: ClassVar = {
        "weight": weight(),
        "mask_token": field(
            "", "The token of the vocabulary that stands for a masked one; empty: the tokenizer's own mask token."
        ),
    }


class ReplacedTokenDetection(SecondPassObjective):
    """DiffCSE's second pass, over the pairs' two sentences with words of the generator."""

    name = "replaced_token_detection"
    about = "Which tokens did a generator replace? (DiffCSE, section 3)."
    replaces_tokens = every_sentence = True
    paired = compares_views = truncatable = False
    fields: ClassVar = {
        "weight": weight(),
        "masking_rate": number(
            0.3,
            "The share of tokens that are masked before the generator reads a sentence.",
            rule("above 0 and at most 1", lambda rate: 0 < rate <= 1),
        ),
        "reading": field("released", f"What is replaced. {explain(REPLACEMENTS)}.", one_of(REPLACEMENTS)),
        "reduction": field("mean", f"One loss of all tokens'. {explain(REDUCTIONS)}.", one_of(REDUCTIONS)),
    }

    def conflicts(self, config: Any, active: Sequence[Objective]) -> Iterator[tuple[str, str]]:
        """A run without a generator, and positives that are several sentences."""
        if config.data.positives == SPANS and config.data.spans.positives > 1:
            yield "data.spans.positives", "replaced_token_detection needs the embedding of one sentence; set it to 1"
        if not config.model.generator:
            needed = "a model with its language-model head, e.g. distilbert-base-uncased"
            yield "model.generator", f"must be set for objective.replaced_token_detection: {needed}"


class SoftmaxNLI(Objective):
    """SBERT's classifier, which is trained with the encoder."""

    name = "softmax_nli"
    about = "SBERT's classifier of labelled pairs."
    labels = RELATIONS
    paired = compares_views = projectable = truncatable = False  # the classifier is one of whole embeddings


class SupCon(Objective):
    """Sentences of a class attract each other, and repel those of other classes."""

    name = "supcon"
    about = "Sentences with classes: those of a class find each other in the batch (Khosla et al. 2020)."
    labels = CLASSES
    reads = ("anchor", "positive")
    fields: ClassVar = {"weight": weight(), "temperature": number(0.1, "Divides cosines.", above(0))}

    def conflicts(self, config: Any, active: Sequence[Objective]) -> Iterator[tuple[str, str]]:
        """Pairs of any origin."""
        data = config.data
        for name, value in (
            ("positives", data.positives),
            ("augment.name", data.augment.name),
            ("columns.positive", data.columns.positive),
        ):
            if value:
                yield f"data.{name}", "objective.supcon takes sentences with classes, not pairs; it must be empty"

    def check_columns(self, fields: Any, columns: Columns) -> None:
        """Refuses pairs."""
        if columns.number > 1:
            sentences = f"{columns.data} has {columns.number} columns of them; choose one with data.columns.anchor"
            raise UserError(f"config.objective.supcon.weight: needs sentences with classes, but {sentences}")


class CoSENT(Objective):
    """Pairs ranked by their cosine."""

    name = "cosent"
    about = "Pairs with scores: the higher score must have the higher cosine (CoSENT)."
    scores = "ranked"
    paired = compares_views = False
    fields: ClassVar = {"weight": weight(), "temperature": number(0.05, "Divides cosines.", above(0))}


class AnglE(Objective):
    """CoSENT with another similarity."""

    name = "angle"
    about = "The same by angles in complex space (AnglE)."
    scores = "ranked"
    paired = compares_views = False
    fields: ClassVar = {"weight": weight(), "temperature": number(0.05, "Divides similarities.", above(0))}


class CosineMSE(Objective):
    """SBERT's regression."""

    name = "cosine_mse"
    about = "Pairs with scores from 0 to 1: the squared error of cosines (SBERT)."
    scores = "unit"
    paired = compares_views = False


class EmbeddingMSE(Objective):
    """Every sentence's embedding is that of a teacher."""

    name = "embedding_mse"
    about = "Embeddings as the teacher's: the squared error."
    teacher = ELEMENTS
    paired = compares_views = projectable = False  # a teacher's embeddings have no projector


class MarginMSE(Objective):
    """The teacher's margins between an anchor's positive and its own hard negatives."""

    name = "margin_mse"
    about = "Positives against hard negatives as the teacher has them: the squared error (MarginMSE)."
    teacher = SCORES
    hard_negatives = True
    fields: ClassVar = {
        "weight": weight(),
        "similarity": field("dot", "The similarity of two embeddings, in both.", one_of(MEASURES)),
    }


class Triplet(Objective):
    """Distances between an anchor's positive and its own hard negatives."""

    name = "triplet"
    about = "The positive nearer than each own hard negative, by a margin (Schroff et al. 2015, SBERT)."
    hard_negatives = True
    fields: ClassVar = {
        "weight": weight(),
        "margin": number(1.0, "How much nearer the positive must be.", at_least(0)),
        "distance": field("euclidean", f"Of two embeddings. {explain(DISTANCES)}.", one_of(DISTANCES)),
    }


class DistillKL(Objective):
    """The teacher's ranking of an anchor's own candidates."""

    name = "distill_kl"
    about = "Which of an anchor's own positive and hard negatives is near, as the teacher has it."
    teacher = SCORES
    hard_negatives = True
    fields: ClassVar = {
        "weight": weight(),
        "temperature": number(1.0, "Divides similarities, in both.", above(0)),
        "teacher_temperature": number(
            0.0, "Divides the teacher's similarities or scores in its place; 0.0: temperature does.", at_least(0)
        ),
        "similarity": field("dot", "The similarity of two embeddings, in both.", one_of(MEASURES)),
    }


class GIST(Objective):
    """InfoNCE whose negatives a teacher sorts out."""

    name = "gist"
    about = "InfoNCE without the negatives that the teacher finds too similar (GIST)."
    teacher = EMBEDDINGS
    contrasts = True
    fields: ClassVar = {
        "weight": weight(),
        "temperature": number(0.01, "Divides similarities.", above(0)),
        "margin": number(
            0.0, "How much less similar than the positive a negative must be to the teacher.", at_least(0)
        ),
        "margin_kind": field("absolute", f"What the margin is. {explain(MARGINS)}.", one_of(MARGINS)),
        "contrast_anchors": field(True, "Other anchors are negatives of an anchor, too."),
        "contrast_positives": field(True, "Other positives are negatives of a positive, too."),
    }


class RankingDistillation(Objective):
    """RankCSE's distillation of a teacher's lists; of two teachers, of the mean of their lists."""

    name = "ranking_distillation"
    reads = ("anchor", "positive")
    about = "A sentence ranks the others of the batch as the teacher does (RankCSE)."
    teacher = EMBEDDINGS
    compares_views = False  # equal views have a list to learn, too
    fields: ClassVar = {
        "weight": weight(),
        "method": field("listmle", f"Which loss of a list. {explain(LIST_LOSSES)}.", one_of(LIST_LOSSES)),
        "temperature": number(0.05, "Divides similarities.", above(0)),
        "teacher_temperature": number(0.025, "Divides the teacher's similarities, for listnet.", above(0)),
        "reading": reading(
            {
                "paper": "whole lists, as in RankCSE",
                "released": "as in its public code, which is not its authors': listnet without the sentence's own "
                "positive, listmle with 1e-7 added in the logarithm",
            }
        ),
    }


DECLARATIONS: tuple[type[Objective], ...] = tuple(
    kind for kind in globals().values() if isinstance(kind, type) and kind.__module__ == __name__
)
