import numpy as np
import pytest

from simcse_jax.config.fields import default_config
from simcse_jax.data.batches import Corpus
from simcse_jax.errors import UserError
from simcse_jax.objectives.objective import Columns, Objective
from simcse_jax.training.columns import check_columns, check_needs


def test_views_differ_by_any_rate_above_zero_a_change_or_another_column():
    def check(columns=1, fewest=None, **fields):
        config = default_config()
        config.model.dropout = 0.0
        config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
        check_columns(config, columns, columns if fewest is None else fewest)

    check(model__attention_dropout=0.1)
    check(views__positive_dropout=0.1)
    check(views__positive="off")
    check(views__positive_change="shuffled")
    check(model__dual_encoder=True)
    check(model__lora__rank=2, model__lora__dropout=0.1)
    check(views__positive="noisy")
    check(columns=2)
    templates = {"model__template": "a [X] [MASK].", "views__positive_template": "b [X] [MASK]."}
    check(**templates)
    check(objective__info_nce__weight=0.0, objective__mlm__weight=1.0)  # compares no views
    for fields in (
        {"model__attention_dropout": 0.0}, {"views__positive": "mean"}, {"model__lora__rank": 2},
        {"model__lora__dropout": 0.1},  # of products that are not there
        {"views__positive": "noisy", "views__noise": 0.0}, {"views__anchor_change": "cutoff", "views__cutoff": 0.0},
        templates | {"views__positive_template": templates["model__template"]},
    ):  # fmt: skip
        with pytest.raises(UserError, match="both views of a sentence would be the same"):
            check(**fields)
    with pytest.raises(UserError, match="both views of a sentence would be the same"):
        check(columns=3, fewest=1)  # of a mixed corpus
    ids = np.zeros((2, 3, 8), np.int32)
    assert Corpus(ids, ids).fewest_columns == 3
    assert Corpus(ids, ids, present=np.array([[True, False, False], [True] * 3])).fewest_columns == 1


def test_rows_that_lack_hard_negatives():
    config = default_config()
    check_columns(config, 5, 2)
    config.objective.margin_mse.weight = 1.0
    check_columns(config, 5, 3)
    with pytest.raises(UserError, match=r"margin_mse\.weight: needs a hard negative in every row"):
        check_columns(config, 5, 2)
    config.projector.widths = "2D,D"
    with pytest.raises(UserError, match=r"projector\.widths='2D,D': its batch norm"):
        check_columns(config, 5, 3)


class Labelled(Objective):
    name = "labelled"
    labels = hard_negatives = True


def test_data_without_what_it_declares_are_refused():
    lacks = ((2, 2, 2), "hard negatives"), ((3, 2, 3), "a hard negative in every row"), ((3, 3, 3), "labelled pairs")
    for columns, needs in lacks:
        with pytest.raises(UserError, match=rf"labelled.weight: needs {needs}, but (some rows of )?data.csv"):
            check_needs(Labelled(), Columns("data.csv", *columns))
