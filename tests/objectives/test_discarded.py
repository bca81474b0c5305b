import pytest

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.objectives.discarded import check_kept


def test_what_embeddings_have_in_training_alone_is_refused():
    config = default_config()
    for mlp, pooler in (("none", ""), ("always", ""), ("none", "cls")):
        config.model.mlp, config.eval.pooler = mlp, pooler
        check_kept(config, "config.some.field", "it is so")
    for mlp, pooler, named in (("train", "", "model.mlp=train"), ("none", "avg", "eval.pooler=avg")):
        config.model.mlp, config.eval.pooler = mlp, pooler
        with pytest.raises(UserError, match=rf"config.some.field: .*{named}"):
            check_kept(config, "config.some.field", "it is so")


def test_objectives_of_elements_ask_for_it():
    for fields in ({"objective.embedding_mse.weight": 1.0, "teacher.model": "m"}, {"matryoshka.dimensions": ("64",)}):
        config = default_config()
        config.update_from_flattened_dict(fields)
        with pytest.raises(UserError, match=f"config.{next(iter(fields))}: with model.mlp=train"):
            validate(config)
        config.model.mlp = "none"
        validate(config)
