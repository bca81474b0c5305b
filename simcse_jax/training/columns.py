"""What objectives need of the columns of a run's data: hard negatives, or labelled or graded pairs."""

from simcse_jax.errors import UserError
from simcse_jax.objectives.objective import RELATIONS, Columns, Objective


def check_needs(objective: Objective, columns: Columns) -> None:
    """Refuses data without the columns that an objective declares that it needs."""
    field = f"config.objective.{objective.name}.weight"
    if objective.hard_negatives and columns.number < 3:
        raise UserError(
            f"{field}: needs hard negatives, but {columns.data} has no column of them; set data.columns.negative"
        )
    if objective.hard_negatives and columns.fewest < 3:
        raise UserError(
            f"{field}: needs a hard negative in every row, but some rows of {columns.data} have none; leave these rows "
            "out"
        )
    if (objective.labels == RELATIONS or objective.scores) and columns.number != 2:
        kind = "labelled pairs" if objective.labels else "pairs with scores"
        raise UserError(
            f"{field}: needs {kind}, but {columns.data} has {columns.number} column(s) of sentences; choose two "
            "with data.columns.anchor and data.columns.positive"
        )
