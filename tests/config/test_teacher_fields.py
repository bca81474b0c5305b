import pytest

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError


def config_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return config


@pytest.mark.parametrize("name", ["embedding_mse", "margin_mse", "distill_kl", "gist"])
def test_each_needs_a_teacher(name):
    weight = {f"objective__{name}__weight": 1.0}
    with pytest.raises(UserError, match=f"config.teacher.model: must be set for objective.{name}: a model"):
        validate(config_of(**weight))
    with pytest.raises(UserError, match=rf"config.data.mixed: objective.{name} reads all sentences of every example"):
        validate(config_of(**weight, teacher__model="m", data__mixed=True))
    validate(config_of(**weight, teacher__model="m", model__mlp="none"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"objective__gist__margin_kind": "both"}, "objective.gist.margin_kind='both': must be absolute or relative"),
        ({"objective__gist__temperature": 0.0}, "objective.gist.temperature=0.0: must be above 0"),
        ({"objective__margin_mse__similarity": "l2"}, "objective.margin_mse.similarity='l2': must be cosine or dot"),
        ({"objective__distill_kl__temperature": 0.0}, "objective.distill_kl.temperature=0.0: must be above 0"),
        (
            {"projector__widths": "2D,D", "projector__objectives": ("embedding_mse",)},
            "projector.objectives: embedding_mse sees no projected embeddings",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(fields, message):
    with pytest.raises(UserError, match=f"config.{message}"):
        validate(config_of(**fields))


def test_a_teacher_of_nothing_has_no_effect():
    fields = {"teacher__model": "m", "teacher__kept": "folder"}
    assert {"teacher.model=m", "teacher.kept=folder"} <= set(ineffective(config_of(**fields)))
    fields |= {"objective__gist__weight": 1.0}
    assert not [name for name in ineffective(config_of(**fields)) if "teacher" in name]
    assert "teacher.model=m" in ineffective(config_of(**fields, train__epochs=0))
