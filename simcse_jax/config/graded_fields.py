"""The fields of pairs with scores, and which of them go together with others."""

from ml_collections import config_dict

from simcse_jax.data.scores import Scores, read_range
from simcse_jax.errors import UserError
from simcse_jax.field import above, field, listed, number, weight
from simcse_jax.objectives.choices import GRADED, UNIT_SCORES, UNPAIRED

GRADED_SECTIONS = {
    "objective.cosent": "Pairs with scores: the higher score must have the higher cosine (CoSENT).",
    "objective.angle": "The same by angles in complex space (AnglE).",
    "objective.cosine_mse": "Pairs with scores from 0 to 1: the squared error of cosines (SBERT).",
}


SCORE_RANGE = field(
    (),
    "The lowest and the highest score of the data, LOWEST,HIGHEST, e.g. 0,5: scores are scaled to 0 … 1; empty: they "
    "are taken as they are.",
    listed("empty, or the lowest and the highest score, e.g. 0,5", read_range),
)

GRADED_FIELDS = {
    "objective.cosent.weight": weight(),
    "objective.cosent.temperature": number(0.05, "Divides cosines.", above(0)),
    "objective.angle.weight": weight(),
    "objective.angle.temperature": number(0.05, "Divides similarities.", above(0)),
    "objective.cosine_mse.weight": weight(),
}


def graded(config: config_dict.ConfigDict) -> list[str]:
    """The objectives that need scores and have a weight."""
    return [name for name in GRADED if config.objective[name].weight]


def scores_of(config: config_dict.ConfigDict) -> Scores | None:
    """How a run reads scores; None if no objective needs them."""
    names = graded(config)
    if not names:
        return None
    bounds = read_range(config.data.score_range)
    unit = [name for name in names if name in UNIT_SCORES]
    if bounds is None and unit:
        return Scores(f"objective.{unit[0]}", (0.0, 1.0))
    return Scores(f"objective.{names[0]}", bounds, stated=bounds is not None)


def check_graded(config: config_dict.ConfigDict) -> None:
    """Refuses scores next to data and objectives that have no use for them.

    Raises:
      UserError: naming the field.
    """
    names, data = graded(config), config.data
    if not names:
        return
    needed_by = f"objective.{names[0]}"
    if data.augment.name:
        raise UserError(f"config.{needed_by}.weight: needs pairs with scores, so data.augment.name must be empty")
    if data.positives not in ("", "all"):
        raise UserError(f"config.data.positives={data.positives!r}: must be empty or all, for {needed_by}")
    if data.columns.negative:
        raise UserError(
            f"config.data.columns.negative={data.columns.negative!r}: {needed_by} needs pairs with scores; leave it "
            "empty"
        )
    paired = [name for name, term in config.objective.items() if name not in UNPAIRED and term.weight]
    if paired and data.positives != "all":
        raise UserError(
            f"config.objective.{paired[0]}.weight: next to {names[0]} it would take all pairs for positives, those "
            "with low scores too; set it to 0.0, or data.positives=all if you want that"
        )


def graded_conditions(config: config_dict.ConfigDict) -> dict[str, bool]:
    """For each of these fields that may be without effect, whether it has one."""
    return {name: bool(graded(config)) for name in ("data.columns.score", "data.score_range")}
