import pytest

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.objectives.discarded import check_kept


@pytest.mark.parametrize(
    ("mlp", "pooler", "named"),
    [
        *(("none", "", None), ("always", "", None), ("none", "cls", None)),
        *(("train", "", "model.mlp=train"), ("none", "avg", "eval.pooler=avg")),
    ],
)
def test_what_embeddings_have_in_training_alone_is_refused(mlp, pooler, named):
    config = default_config()
    config.model.mlp, config.eval.pooler = mlp, pooler
    if named is None:
        check_kept(config, "config.some.field", "it is so")
    else:
        with pytest.raises(UserError, match=rf"config.some.field: .*{named}"):
            check_kept(config, "config.some.field", "it is so")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"objective.embedding_mse.weight": 1.0, "teacher.model": "m"}, "config.objective.embedding_mse.weight"),
        ({"matryoshka.dimensions": ("64",)}, "config.matryoshka.dimensions"),
    ],
)
def test_objectives_of_elements_ask_for_it(fields, named):
    config = default_config()
    config.update_from_flattened_dict(fields)
    with pytest.raises(UserError, match=f"{named}: with model.mlp=train"):
        validate(config)
    config.model.mlp = "none"
    validate(config)
