import pytest

from simcse_jax.errors import UserError
from simcse_jax.objectives.objective import RELATIONS, Columns, Objective
from simcse_jax.training.columns import check_needs


class Labelled(Objective):
    name = "labelled"
    labels, hard_negatives = RELATIONS, True


def test_data_without_what_it_declares_are_refused():
    lacks = ((2, 2, 2), "hard negatives"), ((3, 2, 3), "a hard negative in every row"), ((3, 3, 3), "labelled pairs")
    for columns, needs in lacks:
        with pytest.raises(UserError, match=rf"labelled.weight: needs {needs}, but (some rows of )?data.csv"):
            check_needs(Labelled(), Columns("data.csv", *columns))
