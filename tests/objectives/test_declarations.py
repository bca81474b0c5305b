import re

import pytest

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError


def scored(**fields):
    config = default_config()
    chosen = {"objective.info_nce.weight": 0.0, "objective.cosent.weight": 1.0}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    return config


COLUMNS = {f"data__columns__{name}": name for name in ("anchor", "positive", "negative")}


def test_what_does_not_go_together_is_refused():
    for fields, named in (
        ({"objective__info_nce__weight": 1.0}, "objective.info_nce.weight=1.0: next to cosent"),
        ({"objective__cosent__temperature": 0.0}, "objective.cosent.temperature=0.0"),
        ({"data__augment__name": "crop"}, "objective.cosent.weight=1.0: needs pairs with scores, so data.augment.name"),
        ({"data__positives": "entailment"}, "data.positives='entailment'"),
        (COLUMNS, "data.columns.negative='negative'"),
        ({"objective__contrastive_tension__weight": 1.0}, "objective.cosent.weight=1.0: next to contrastive_tension"),
        ({"data__score_range": ("5", "0")}, "data.score_range=('5', '0')"),
        ({"data__score_range": ("5",)}, "data.score_range="),
    ):
        with pytest.raises(UserError, match=re.escape(f"config.{named}")):
            validate(scored(**fields))


def test_it_goes_with_each_other_with_masked_words_and_where_it_is_said_with_in_batch_negatives():
    others = {"objective__angle__weight": 1.0, "objective__cosine_mse__weight": 0.5, "objective__mlm__weight": 0.1}
    validate(scored(**others, data__score_range=("0", "5")))
    validate(scored(objective__info_nce__weight=1.0, data__positives="all"))
