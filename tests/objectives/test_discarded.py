import pytest

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.objectives.discarded import check_kept


@pytest.mark.parametrize(("mlp", "pooler"), [("none", ""), ("always", ""), ("none", "cls")])
def test_what_is_kept_is_taken(mlp, pooler):
    config = default_config()
    config.model.mlp, config.eval.pooler = mlp, pooler
    check_kept(config, "config.some.field", "it is so")


@pytest.mark.parametrize(
    ("mlp", "pooler", "message"),
    [
        (
            "train",
            "",
            "field: with model.mlp=train it is so only after a head that the model does not keep",
        ),
        (
            "none",
            "avg",
            "it is so only with the pooler of training, cls, and the model has eval.pooler=avg",
        ),
    ],
)
def test_what_embeddings_have_in_training_alone_is_refused(mlp, pooler, message):
    config = default_config()
    config.model.mlp, config.eval.pooler = mlp, pooler
    with pytest.raises(UserError, match=message):
        check_kept(config, "config.some.field", "it is so")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"objective.embedding_mse.weight": 1.0, "teacher.model": "m"}, "config.objective.embedding_mse.weight: with"),
        ({"matryoshka.dimensions": ("64",)}, "config.matryoshka.dimensions: with model.mlp=train"),
    ],
)
def test_objectives_of_elements_ask_for_it(fields, message):
    config = default_config()
    config.update_from_flattened_dict(fields)
    with pytest.raises(UserError, match=message):
        validate(config)
    config.model.mlp = "none"
    validate(config)
