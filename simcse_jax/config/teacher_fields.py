"""The fields of a teacher: a model whose embeddings of the training sentences some objectives take."""

from typing import Any

from simcse_jax.config.sections import Config
from simcse_jax.errors import UserError
from simcse_jax.field import field
from simcse_jax.objectives.registry import needing

TEACHER_SECTIONS = {
    "teacher": "A model whose embeddings of all training sentences are computed once, before the run.",
}


def _taught(config: Any) -> bool:
    return bool(needing(config.objective, "teacher"))


TEACHER_FIELDS = {
    "teacher.model": field(
        "", "The model, as for model.init_from; it is used as it is published, and not trained.", only=_taught
    ),
    "teacher.kept": field(
        "",
        "A folder that keeps its embeddings for other runs on the same sentences; empty: they are not kept.",
        only=_taught,
    ),
}


def check_teacher(config: Config) -> None:
    """Refuses objectives of a teacher without one, and data that have no sentence for it."""
    names = [objective.name for objective in needing(config.objective, "teacher")]
    if not names:
        return
    if not config.teacher.model:
        raise UserError(f"config.teacher.model: must be set for objective.{names[0]}: a model")
    if config.data.mixed:
        raise UserError(
            f"config.data.mixed: objective.{names[0]} reads all sentences of every example, and some sources lack one; "
            "set it to False, or the objective's weight to 0.0"
        )
