"""What objectives of pairs with scores share."""

from collections.abc import Sequence
from typing import Any

from simcse_jax.errors import UserError
from simcse_jax.objectives.objective import Objective


class Graded(Objective):
    """An objective of pairs with scores, some of which may be low."""

    paired = compares_views = False

    def check(self, config: Any, active: Sequence[Objective]) -> None:
        """Refuses data without scores, and objectives that take all pairs for positives."""
        field, data = f"objective.{self.name}", config.data
        if data.augment.name:
            raise UserError(f"config.{field}.weight: needs pairs with scores, so data.augment.name must be empty")
        if data.positives not in ("", "all"):
            raise UserError(f"config.data.positives={data.positives!r}: must be empty or all, for {field}")
        if data.columns.negative:
            raise UserError(
                f"config.data.columns.negative={data.columns.negative!r}: {field} needs pairs with scores; leave it "
                "empty"
            )
        paired = [other.name for other in active if other.paired]
        if paired and data.positives != "all":
            raise UserError(
                f"config.objective.{paired[0]}.weight: next to {self.name} it would take all pairs for positives, "
                "those with low scores too; set it to 0.0, or data.positives=all if you want that"
            )
