"""The fields of a teacher: a model whose embeddings of the training sentences some objectives take."""

from ml_collections import config_dict

from simcse_jax.config.discarded import check_kept
from simcse_jax.errors import UserError
from simcse_jax.field import above, at_least, either, explain, field, number, weight
from simcse_jax.objectives.choices import MARGINS, SIMILARITIES, TAUGHT

TEACHER_SECTIONS = {
    "teacher": "A model whose embeddings of all training sentences are computed once, before the run.",
    "objective.embedding_mse": "Embeddings as the teacher's: the squared error.",
    "objective.margin_mse": "Positives against hard negatives as the teacher has them: the squared error (MarginMSE).",
    "objective.distill_kl": "Which of an anchor's own positive and hard negatives is near, as the teacher has it.",
    "objective.gist": "InfoNCE without the negatives that the teacher finds too similar (GIST).",
}


TEACHER_FIELDS = {
    "teacher.model": field("", "The model, as for model.init_from; it is used as it is published, and not trained."),
    "teacher.kept": field(
        "", "A folder that keeps its embeddings for other runs on the same sentences; empty: they are not kept."
    ),
    "objective.embedding_mse.weight": weight(),
    "objective.margin_mse.weight": weight(),
    "objective.margin_mse.similarity": field("dot", "The similarity of two embeddings, in both.", either(SIMILARITIES)),
    "objective.distill_kl.weight": weight(),
    "objective.distill_kl.temperature": number(1.0, "Divides similarities, in both.", above(0)),
    "objective.distill_kl.similarity": field("dot", "The similarity of two embeddings, in both.", either(SIMILARITIES)),
    "objective.gist.weight": weight(),
    "objective.gist.temperature": number(0.01, "Divides similarities.", above(0)),
    "objective.gist.margin": number(
        0.0, "How much less similar than the positive a negative must be to the teacher.", at_least(0)
    ),
    "objective.gist.margin_kind": field("absolute", f"What the margin is. {explain(MARGINS)}.", either(MARGINS)),
    "objective.gist.contrast_anchors": field(True, "Other anchors are negatives of an anchor, too."),
    "objective.gist.contrast_positives": field(True, "Other positives are negatives of a positive, too."),
}


def taught(config: config_dict.ConfigDict) -> list[str]:
    """The objectives that need a teacher and have a weight."""
    return [name for name in TAUGHT if config.objective[name].weight]


def check_teacher(config: config_dict.ConfigDict) -> None:
    """Refuses objectives of a teacher without one, and data that have no sentence for it.

    Raises:
      UserError: naming the field.
    """
    names = taught(config)
    if not names:
        return
    if not config.teacher.model:
        raise UserError(f"config.teacher.model: must be set for objective.{names[0]}: a model")
    if config.data.mixed:
        raise UserError(
            f"config.data.mixed: objective.{names[0]} reads all sentences of every example, and some sources lack one; "
            "set it to False, or the objective's weight to 0.0"
        )
    if "embedding_mse" in names:
        check_kept(config, "config.objective.embedding_mse.weight", "the trained embedding is the teacher's")


def teacher_conditions(config: config_dict.ConfigDict) -> dict[str, bool]:
    """For each of these fields that may be without effect, whether it has one."""
    return {"teacher.model": bool(taught(config)), "teacher.kept": bool(taught(config))}
