import pytest

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.data.scores import Scores
from simcse_jax.errors import UserError
from simcse_jax.training.reading import scores_of


def config_of(**fields):
    config = default_config()
    chosen = {"objective.info_nce.weight": 0.0, "objective.cosent.weight": 1.0}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    return config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"objective__info_nce__weight": 1.0}, "objective.info_nce.weight: next to cosent it would take all pairs for"),
        ({"objective__cosent__temperature": 0.0}, "objective.cosent.temperature=0.0: must be above 0"),
        ({"data__augment__name": "crop"}, "objective.cosent.weight: needs pairs with scores, so data.augment.name"),
        ({"data__positives": "entailment"}, "data.positives='entailment': must be empty or all, for objective.cosent"),
        (
            {"data__columns__anchor": "a", "data__columns__positive": "b", "data__columns__negative": "c"},
            "data.columns.negative='c': objective.cosent needs pairs with scores; leave it empty",
        ),
        ({"objective__contrastive_tension__weight": 1.0}, "objective.cosent.weight: next to contrastive_tension"),
        ({"data__score_range": ("5", "0")}, r"data.score_range=\('5', '0'\): must be empty, or the lowest"),
        ({"data__score_range": ("5",)}, "data.score_range=.*: must be empty, or the lowest"),
    ],
)
def test_what_does_not_go_together_is_refused(fields, message):
    with pytest.raises(UserError, match=f"config.{message}"):
        validate(config_of(**fields))


def test_it_goes_with_each_other_with_masked_words_and_where_it_is_said_with_in_batch_negatives():
    others = {"objective__angle__weight": 1.0, "objective__cosine_mse__weight": 0.5, "objective__mlm__weight": 0.1}
    validate(config_of(**others, data__score_range=("0", "5")))
    validate(config_of(objective__info_nce__weight=1.0, data__positives="all"))


def test_scores_are_read_as_the_objectives_need_them():
    assert scores_of(default_config()) is None
    assert scores_of(config_of()) == Scores("objective.cosent")
    assert scores_of(config_of(data__score_range=("0", "5"))) == Scores("objective.cosent", (0.0, 5.0), True)
    unit = {"objective__cosine_mse__weight": 1.0}
    assert scores_of(config_of(**unit)) == Scores("objective.cosine_mse", (0.0, 1.0))
    assert scores_of(config_of(**unit, data__score_range=("1", "5"))).bounds == (1.0, 5.0)


def test_fields_without_an_objective_of_scores_have_no_effect():
    fields = {"data__score_range": ("0", "5"), "data__columns__score": "z"}
    assert not [name for name in ineffective(config_of(**fields)) if "score" in name]
    unused = ineffective(config_of(**fields, objective__cosent__weight=0.0, objective__info_nce__weight=1.0))
    assert {"data.columns.score=z", "data.score_range=('0', '5')"} <= set(unused)
